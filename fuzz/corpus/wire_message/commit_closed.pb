

executor-1¬(
 hfy4c5zk5vz42xwrsqc4cglci434zdug($
 hfy4c5zk5vz42xwrsqc4cglci434zdug(