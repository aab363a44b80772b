
‡
 hfy4c5zk5vz42xwrsqc4cglci434zdugorder intakesam"@0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f*billingHûõÕêŸ4