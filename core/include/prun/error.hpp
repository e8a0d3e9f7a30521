// SPDX-License-Identifier: Apache-2.0
// This is the only error type. Core and plugins throw it on their own side of the ABI; it never crosses it
// (plugin.hpp turns it into a Status). The message is a sentence for the user: what, where, what to do.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace prun {

// Says what kind of error it is; exit_code() maps it to what the shell sees.
enum class ErrorCode : std::int32_t {
  ok = 0,
  bad_input,  // wrong recipe, data, checkpoint or plugin, which the user can correct
  not_found,
  unsupported,  // a combination that cannot work
  storage,      // file system or device I/O
  diverged,     // non-finite loss or gradient
  rank_died,    // a process of the run ended before its time
  hang,         // a rank did not reach a collective within the limit
  comm_failed,  // a peer or a link is gone
  internal,     // a broken invariant of prun itself
};

inline int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::ok: return 0;
    case ErrorCode::bad_input:
    case ErrorCode::not_found:
    case ErrorCode::unsupported: return 2;
    case ErrorCode::storage: return 13;
    case ErrorCode::diverged: return 15;
    case ErrorCode::rank_died: return 10;
    case ErrorCode::hang: return 11;
    case ErrorCode::comm_failed: return 12;
    case ErrorCode::internal: return 1;
  }
  return 1;
}

// A failed allocation has this message; its code is `unsupported`.
inline constexpr const char* out_of_memory =
    "the system gives this process no more memory; raise the limit on its address space (ulimit -v) or on "
    "the "
    "container's memory, or take a smaller model or batch";

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

namespace detail {
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}
}  // namespace detail

// An example is throw_error(ErrorCode::bad_input, path, ": header says ", n, " tokens, the file has ", m).
template <class... Parts>
[[noreturn]] void throw_error(ErrorCode code, const Parts&... parts) {
  throw Error(code, detail::concat(parts...));
}

}  // namespace prun

// Checks an invariant of prun or a plugin. If it fails, the message names the expression and its place.
#define PRUN_CHECK(expression, ...)                                                                    \
  do {                                                                                                 \
    if (!(expression)) [[unlikely]]                                                                    \
      ::prun::throw_error(::prun::ErrorCode::internal, __FILE__, ":", __LINE__, ": " #expression ": ", \
                          ::prun::detail::concat(__VA_ARGS__));                                        \
  } while (false)
