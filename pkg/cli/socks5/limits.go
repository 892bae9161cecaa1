// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"fmt"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/httplimits"
)

// mostConns returns how many connections are served: --max-connections, or what the descriptors of this process allow. A
// connection takes one to the client, one or more to the destination, and four while the kernel copies between them.
func (o *Options) mostConns() int {
	most := httplimits.Limits{Conns: o.MaxConns}.Most()
	if most < o.MaxConns {
		fmt.Fprintf(o.Streams.ErrOut, "Warning: serving up to %d connections at a time, not %d: this process may open too few files: set ulimit -n to %d, or lower --max-connections\n",
			most, o.MaxConns, httplimits.DescriptorsOfConn*uint64(max(0, o.MaxConns)))
	}
	return most
}

// failures bounds how fast clients guess a password that a person may have chosen. The random one cannot be guessed, and
// other users of this machine, who have the same address, must not keep its owner out.
func (o *Options) failures() *gateway.Failures {
	if o.PasswordFile == "" {
		return nil
	}
	return gateway.NewFailures(gateway.FailureDelay)
}
