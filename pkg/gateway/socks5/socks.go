// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"bytes"
	"context"
	"errors"
	"net/netip"

	"github.com/things-go/go-socks5/statute"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/gateway/auth"
)

const socksVersion = statute.VersionSocks5

// socks is SOCKS5 on one connection.
type socks struct {
	*conn
	// requested: the request was read, so that a refusal is a reply to it.
	requested bool
	// badAddress: the request has an unknown type of address.
	badAddress bool
}

func (s *socks) name() string { return "socks5" }

func (s *socks) handshake(ctx context.Context) (target, error) {
	client, err := s.authenticate(ctx)
	if err != nil {
		return target{}, err
	}
	req, err := statute.ParseRequest(s.in)
	s.requested = true
	switch {
	case errors.Is(err, statute.ErrUnrecognizedAddrType):
		s.badAddress = true
		return target{}, gateway.Errorf(ReasonMalformed, "", "the request has an unknown type of address: %d", req.DstAddr.AddrType)
	case err != nil && req.Version != 0 && req.Version != socksVersion:
		return target{}, gateway.Errorf(ReasonMalformed, "", "the request has version %d", req.Version)
	case err != nil:
		return target{}, s.cutOff("request", err)
	case req.Command != statute.CommandConnect:
		return target{}, gateway.Errorf(gateway.ReasonUnsupported, "", "the client asked for command %d: only CONNECT is supported", req.Command)
	}
	t := target{client: client, host: req.DstAddr.FQDN, port: uint16(req.DstAddr.Port)}
	if ip, ok := netip.AddrFromSlice(req.DstAddr.IP); ok {
		t.host = ip.Unmap().String()
	}
	err = checkTarget(t.host, t.port)
	if err == nil {
		s.rec.setTarget(t)
	}
	return t, err
}

// cutOff explains an error of the codec, whose errors hide those of the connection.
func (s *socks) cutOff(what string, err error) error {
	if _, again := s.in.Peek(1); again != nil {
		err = again
	}
	return readError(what, err)
}

// authenticate chooses a method and runs it.
func (s *socks) authenticate(ctx context.Context) (user.Info, error) {
	greeting, err := statute.ParseMethodRequest(s.in)
	if err != nil {
		return nil, s.cutOff("greeting", err)
	}
	offers := func(method byte) bool { return bytes.IndexByte(greeting.Methods, method) >= 0 }
	a := s.s.cfg.Authenticator
	_, without := a.WithoutLogin(s.tls)
	switch {
	case without == nil && offers(statute.MethodNoAuth):
		if err := s.write(socksVersion, statute.MethodNoAuth); err != nil {
			return nil, err
		}
		return s.identify(ctx, auth.Credentials{})
	case a.AcceptsLogin() && offers(statute.MethodUserPassAuth):
		if err := s.write(socksVersion, statute.MethodUserPassAuth); err != nil {
			return nil, err
		}
		return s.login(ctx)
	}
	_ = s.write(socksVersion, statute.MethodNoAcceptable)
	return nil, gateway.Errorf(ReasonUnauthenticated, "use a user name and a password, or a client certificate",
		"the client offers no method of authentication that is accepted here")
}

func (s *socks) login(ctx context.Context) (user.Info, error) {
	r, err := statute.ParseUserPassRequest(s.in)
	if err != nil && r.Ver != 0 && r.Ver != statute.UserPassAuthVersion {
		_ = s.write(statute.UserPassAuthVersion, statute.AuthFailure)
		return nil, gateway.Errorf(ReasonMalformed, "", "the authentication has version %d", r.Ver)
	}
	if err != nil {
		return nil, s.cutOff("authentication", err)
	}
	u, err := s.identify(ctx, auth.Credentials{Login: &auth.Login{Name: string(r.User), Password: string(r.Pass)}})
	if err != nil {
		_ = s.write(statute.UserPassAuthVersion, statute.AuthFailure)
		return nil, err
	}
	return u, s.write(statute.UserPassAuthVersion, statute.AuthSuccess)
}

func (s *socks) write(b ...byte) error {
	if _, err := s.nc.Write(b); err != nil {
		return readError("answer", err)
	}
	return nil
}

func (s *socks) reply(code byte) error {
	// The address that is bound means nothing to a client: the connection leaves from
	// somewhere in the cluster.
	r := statute.Reply{Version: socksVersion, Response: code, BndAddr: statute.AddrSpec{AddrType: statute.ATYPIPv4, IP: make([]byte, 4)}}
	return s.write(r.Bytes()...)
}

func (s *socks) accept() error { return s.reply(statute.RepSuccess) }

func (s *socks) refuse(err *gateway.Error) {
	switch {
	case !s.requested:
	case s.badAddress:
		_ = s.reply(statute.RepAddrTypeNotSupported)
	default:
		_ = s.reply(answerTo(err.Reason).reply)
	}
}
