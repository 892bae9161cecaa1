// SPDX-License-Identifier: Apache-2.0

package socks5

import (
	"net/http"

	"github.com/things-go/go-socks5/statute"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// Reasons of this package in addition to those of package gateway.
const (
	// ReasonMalformed: the client does not follow the protocol.
	ReasonMalformed gateway.Reason = "malformed"
	// ReasonUnauthenticated: the client's credentials are missing or wrong.
	ReasonUnauthenticated gateway.Reason = "unauthenticated"
	// ReasonClientGone: the client closed its connection before the reply.
	ReasonClientGone gateway.Reason = "client-gone"
)

type answer struct {
	reply  byte // of SOCKS5
	status int  // of HTTP
}

// answers has the reply to each reason. docs/socks5.md repeats it for users.
var answers = map[gateway.Reason]answer{
	gateway.ReasonDenied:          {statute.RepRuleFailure, http.StatusForbidden},
	gateway.ReasonNotFound:        {statute.RepHostUnreachable, http.StatusNotFound},
	gateway.ReasonNoEndpoints:     {statute.RepConnectionRefused, http.StatusServiceUnavailable},
	gateway.ReasonRefused:         {statute.RepConnectionRefused, http.StatusBadGateway},
	gateway.ReasonHostUnreachable: {statute.RepHostUnreachable, http.StatusBadGateway},
	gateway.ReasonTimeout:         {statute.RepTTLExpired, http.StatusGatewayTimeout},
	gateway.ReasonPathDown:        {statute.RepNetworkUnreachable, http.StatusServiceUnavailable},
	gateway.ReasonUnsupported:     {statute.RepCommandNotSupported, http.StatusNotImplemented},
	gateway.ReasonBusy:            {statute.RepServerFailure, http.StatusServiceUnavailable},
	gateway.ReasonInternal:        {statute.RepServerFailure, http.StatusInternalServerError},
	ReasonMalformed:               {statute.RepServerFailure, http.StatusBadRequest},
	ReasonUnauthenticated:         {statute.RepRuleFailure, http.StatusProxyAuthRequired},
	ReasonClientGone:              {statute.RepServerFailure, http.StatusBadRequest},
}

// answerTo returns the SOCKS5 reply code and the HTTP status for a reason.
func answerTo(r gateway.Reason) answer {
	if a, ok := answers[r]; ok {
		return a
	}
	return answers[gateway.ReasonInternal]
}
