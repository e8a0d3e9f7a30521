// Handles the secret that the ranks of a run share, and proofs of knowing it (HMAC-SHA256, RFC 2104).
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "launch/identity.hpp"

namespace prun {

using Digest = std::array<std::byte, 32>;

Digest hmac_sha256(std::string_view key, std::string_view message);
// Compares in the same time wherever the digests differ.
bool same_digest(const Digest& a, const Digest& b);
// Takes random bytes from the system's generator.
Digest random_digest();

// Reads the token from PRUN_TOKEN_FILE (only its owner may read it) or PRUN_TOKEN. Throws bad_input, with a
// line that makes a token, when neither is there or it is too short to be a secret.
std::string token_from_environment(const Environment& environment);

}  // namespace prun
