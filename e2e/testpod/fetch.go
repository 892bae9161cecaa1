// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// fetchLimit is how long a request may take.
const fetchLimit = 20 * time.Second

// fetch prints what a URL answers, through the proxy of the environment: http:// through the SOCKS5 proxy of HTTP_PROXY, and https:// by HTTP
// CONNECT through that of HTTPS_PROXY. Tests use it where they must not need curl.
func fetch(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	lenient := flags.Bool("lenient", false, "accept any certificate and any status")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("want fetch [-lenient] URL")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, flags.Arg(0), nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: *lenient}, //nolint:gosec // the caller asks for it
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest && !*lenient {
		return fmt.Errorf("fetch %s: %s", flags.Arg(0), resp.Status)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
