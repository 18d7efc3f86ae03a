SELECT seq, queue, instance, pending, schedule, letter, parked FROM counters WHERE one = 1
