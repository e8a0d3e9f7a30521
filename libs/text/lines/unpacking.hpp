// Unpacks a compressed stream; each format has its own file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace prun {

class Unpacking {
 public:
  virtual ~Unpacking() = default;

  // Takes from the front of `packed`, puts bytes at the front of `room`, and moves both on. Says what is
  // wrong with the stream, or nothing.
  virtual std::string step(std::span<const char>& packed, std::span<char>& room) = 0;

  // Says whether the stream may end with what has been taken.
  virtual bool whole() const = 0;
};

// `file` is for the sentence that says, where this build lacks the library, what to do without it.
std::unique_ptr<Unpacking> unpack_gzip(std::string_view file);
std::unique_ptr<Unpacking> unpack_zstd(std::string_view file);

}  // namespace prun
