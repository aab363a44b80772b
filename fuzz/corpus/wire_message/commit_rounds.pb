

executor-1¬(
 hfy4c5zk5vz42xwrsqc4cglci434zdug(r
 hfy4c5zk5vz42xwrsqc4cglci434zdug"L
 0199f0c4a1b27def8123456789abcdefcancelbilling*the execution has ended(