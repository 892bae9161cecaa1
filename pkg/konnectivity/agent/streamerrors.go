// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strconv"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/h2"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/tunnel"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/wire"
)

// streamError counts the end of a stream of upstream's protocol, or of a link, by its
// gRPC status. An error while sending fails the stream, too, and is not counted
// separately.
func (m *Metrics) streamError(code string) { m.streamErrors.With("to_agent", code, "Unknown").Inc() }

// streamEnded counts the reason why a stream ended, unless the server ended it: then the
// trailers contain the reason.
func (m *Metrics) streamEnded(err error) {
	if err != nil && !errors.Is(err, tunnel.ErrLinkClosed) {
		m.streamError(rpcCode(err))
	}
}

// trailers counts with what status a server ended a stream, unless that is OK.
func (m *Metrics) trailers(fields []h2.Field) {
	for _, f := range fields {
		if f.Name == "grpc-status" && f.Value != "0" {
			m.streamError(rpcName(f.Value))
		}
	}
}

// rpcCode is what gRPC makes of an error.
func rpcCode(err error) string {
	var se *h2.StreamError
	switch {
	case errors.As(err, &se):
		return resetCode(se.Code)
	case errors.Is(err, wire.ErrTooLarge):
		return "ResourceExhausted"
	case errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrTruncated), errors.Is(err, wire.ErrUTF8), errors.Is(err, wire.ErrCompressed):
		return "Internal"
	}
	return "Unavailable" // the connection is lost
}

// resetCode is that for a stream that was reset with a code of HTTP/2.
func resetCode(code uint32) string {
	switch code {
	case h2.CodeFlowControl, h2.CodeEnhanceCalm:
		return "ResourceExhausted"
	case h2.CodeRefused:
		return "Unavailable"
	case h2.CodeCancel:
		return "Canceled"
	}
	return "Internal"
}

// rpcName is the name of a gRPC status.
func rpcName(number string) string {
	if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < len(rpcNames) {
		return rpcNames[n]
	}
	return "Unknown"
}

var rpcNames = [...]string{"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
	"ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated"}
