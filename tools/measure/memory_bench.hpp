// What the host's memory carries when all cores ask of it at once: what updates there, copies and drives have
// to share.
#pragma once

namespace prun {

// Bytes a second read and written by a = a + s b over more than caches hold, every byte that moves counted:
// what is written has been read, so nothing is read that was not asked for.
double host_bandwidth();

}  // namespace prun
