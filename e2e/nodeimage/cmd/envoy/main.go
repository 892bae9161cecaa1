// Command envoy is the load balancer.
package main

func main() {}
