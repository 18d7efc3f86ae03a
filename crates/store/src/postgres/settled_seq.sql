SELECT s.drawn, s.below::text::bigint AS below, s.ended_below::text::bigint AS ended_below FROM settled_seq() s
