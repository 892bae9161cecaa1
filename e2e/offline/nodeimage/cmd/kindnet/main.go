// SPDX-License-Identifier: Apache-2.0

// Command kindnet connects pods across the nodes of a kind cluster. It stands in for the image of the same purpose that
// kind takes from a registry: a DaemonSet that writes a CNI configuration for the node's pod CIDR, keeps a route to
// every other node's pods, and masquerades pod addresses outside of the pod network.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// again is the interval at which everything is checked even if no node has changed: a user or a program may have removed
// a route.
const again = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kindnet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	n := node{
		name: os.Getenv("NODE_NAME"), podSubnets: strings.Split(os.Getenv("POD_SUBNET"), ","),
		confDir: "/etc/cni/net.d", command: command,
	}
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, DeleteFunc: notify, UpdateFunc: func(_, now any) { notify(now) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(again):
		}
		list, err := nodes.Lister().List(labels.Everything())
		if err == nil {
			err = n.sync(ctx, list)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "kindnet:", err)
			time.Sleep(time.Second)
			notify(nil)
		}
	}
}
