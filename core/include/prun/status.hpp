// SPDX-License-Identifier: Apache-2.0
// Every call across the plugin ABI returns this. It is trivially copyable, owns nothing and throws
// nothing.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <type_traits>

#include "prun/error.hpp"

namespace prun {

struct Status {
  ErrorCode code = ErrorCode::ok;
  char message[508] = {};

  bool ok() const { return code == ErrorCode::ok; }

  static Status failure(ErrorCode code, std::string_view text) noexcept {
    Status status;
    status.code = code;
    const std::size_t n = text.size() < sizeof(message) - 1 ? text.size() : sizeof(message) - 1;
    std::memcpy(status.message, text.data(), n);
    return status;
  }
};
static_assert(sizeof(Status) == 512 && std::is_trivially_copyable_v<Status>);

// These are the two sides of the ABI: guard() turns exceptions into a Status before they leave a library,
// raise() turns a Status back into an exception on the caller's side.
template <class Body>
Status guard(Body&& body) noexcept {
  try {
    body();
    return Status{};
  } catch (const Error& error) {
    return Status::failure(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return Status::failure(ErrorCode::unsupported, out_of_memory);
  } catch (const std::exception& error) {
    return Status::failure(ErrorCode::internal, error.what());
  } catch (...) {
    return Status::failure(ErrorCode::internal, "an exception that is not a std::exception");
  }
}

inline void raise(const Status& status) {
  if (!status.ok()) [[unlikely]]
    throw Error(status.code, status.message);
}

// Text and arrays that cross the ABI are borrowed, and valid for the call unless stated otherwise.
struct Text {
  const char* data = "";
  std::uint64_t size = 0;
  constexpr Text() = default;
  constexpr Text(std::string_view s) : data(s.data()), size(s.size()) {}
  constexpr Text(const char* s) : Text(std::string_view(s)) {}
  Text(const std::string& s) : Text(std::string_view(s)) {}
  constexpr std::string_view view() const { return {data, size}; }
};

template <class T>
struct Array {
  const T* data = nullptr;
  std::uint64_t size = 0;
  constexpr const T* begin() const { return data; }
  constexpr const T* end() const { return data + size; }
  constexpr const T& operator[](std::uint64_t i) const { return data[i]; }
};

}  // namespace prun
