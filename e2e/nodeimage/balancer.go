package main

import "context"

func (b *builder) balancer(context.Context) error { return nil }
