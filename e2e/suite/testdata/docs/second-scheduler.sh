prepare() { :; }
cleanup() { fairlead uninstall --yes; } # also if a command before the page's own fails
