"
sswitchj
axry