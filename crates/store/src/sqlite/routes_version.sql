SELECT routes_version FROM tenants WHERE no = ?1
