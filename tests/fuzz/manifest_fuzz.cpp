// Fuzz entry for the manifest of a checkpoint: a text is either refused with bad_input, or what was read of
// it writes a text that reads back to the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "train/checkpoint/manifest.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const prun::Manifest manifest = prun::parse_manifest({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::string once = prun::to_text(manifest);
    if (prun::to_text(prun::parse_manifest(once, "fuzz")) != once) std::abort();
  } catch (const prun::Error& error) {
    if (error.code() != prun::ErrorCode::bad_input) std::abort();
  }
  return 0;
}
