// Limits how long a TCP connection may go without an answer.
#pragma once

#include <chrono>

namespace prun::ucx {

// Sets TCP_USER_TIMEOUT of every TCP socket that this epoll descriptor watches, itself or through others. UCX
// 1.13 has no setting for it. Without it, data sent over a dead link keeps the connection up for a quarter of
// an hour, and keepalive does not ask as long as something waits for its acknowledgement.
void limit_silence(int epoll, std::chrono::milliseconds limit);

}  // namespace prun::ucx
