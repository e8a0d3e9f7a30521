// Feeds anything to the note reader: the whole file, and the text inside the note. Only prun::Error may come
// out.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "plugin/note.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  try {
    prun::read_note(prun::source_of_bytes(std::as_bytes(bytes)), "input");
  } catch (const prun::Error&) {
  }
  try {
    prun::parse_note_text({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const prun::Error&) {
  }
  return 0;
}
