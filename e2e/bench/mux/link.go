// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest/linkpair"
)

func startLink(accept func(stream)) (func() (stream, error), func(), error) {
	near, far, err := tlsPair(linkpair.Wrap)
	if err != nil {
		return nil, nil, err
	}
	open, stop := linkpair.Start(near, far, streamWindow, func(s io.ReadWriteCloser) { accept(s) })
	return func() (stream, error) { return open() }, stop, nil
}
