// SPDX-License-Identifier: Apache-2.0

package server

import "time"

// Age makes the server believe that it was started earlier.
func (s *Server) Age(d time.Duration) { s.started.Add(-int64(d)) }
