// SPDX-License-Identifier: Apache-2.0

package dial_test

import (
	"context"
	"fmt"
	"io"
	"os"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/dial"
	"github.com/fairlead-dev/fairlead/pkg/gateway/resolve"
)

// get asks a Service for a page over any path.
func get(ctx context.Context, resolver *resolve.Resolver, d gateway.Dialer, host string) error {
	to, err := resolver.Resolve(ctx, host, 80)
	if err != nil {
		return err
	}
	// Ask the Authorizer here whether the client may connect.
	conn, err := d.Dial(ctx, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", host)
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// A kubeconfig is enough to reach Pods and Services.
func ExampleNew_portforward() {
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err := kubeconfig.ClientConfig()
	if err != nil {
		panic(err)
	}
	resolver, err := resolve.FromKubeconfig(kubeconfig, resolve.Options{PodsByName: true})
	if err != nil {
		panic(err)
	}
	d, err := dial.New(dial.ViaPortForward, dial.Options{Config: config, Alternatives: resolver.Alternatives})
	if err != nil {
		panic(err)
	}
	defer func() { _ = d.Close() }()
	if err := get(context.Background(), resolver, d, "web.shop"); err != nil {
		fmt.Println(gateway.ReasonOf(err), err)
	}
}

// On a control plane host, connections go through the konnectivity-server.
func ExampleNew_direct() {
	d, err := dial.New(dial.ViaDirect, dial.Options{
		Direct: dial.DirectOptions{Socket: "/run/konnectivity-server/konnectivity-server.socket", Mode: dial.ModeGRPC},
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = d.Close() }()
}

// A bastion carries the connections and those to an API server that only it reaches.
func ExampleSSHDialContext() {
	d, err := dial.New("ssh=alice@bastion.example", dial.Options{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = d.Close() }()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	if config.Dial, err = dial.SSHDialContext(d); err != nil {
		panic(err)
	}
}
