module windlass.dev/fleetctl

go 1.26
