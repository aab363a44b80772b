

executor-1¬V
 hfy4c5zk5vz42xwrsqc4cglci434zdug(20

SINEW-6061"three owners ended with it in hand