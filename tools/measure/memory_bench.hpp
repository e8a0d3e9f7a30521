// Measures what the host's memory carries when all cores use it at once: updates there, copies and drives
// have to share this.
#pragma once

namespace prun {

// Returns the bytes a second that are read and written by a = a + s b over more than caches hold. Every byte
// that moves is counted: what is written has been read, so no further bytes are read.
double host_bandwidth();

}  // namespace prun
