// Reads what prun needs to know of a shared library without running it: notes, needed libraries, dynamic
// symbols. The file may be anything, even hostile: every offset and size is checked against the file and
// against a limit before it is used, and every text that comes out is printable UTF-8.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prun/error.hpp"

namespace prun {

// Reads the bytes of a file, or of a buffer.
struct ByteSource {
  std::uint64_t size = 0;
  // Fills the whole span from `offset`; only called with ranges inside `size`.
  std::function<void(std::uint64_t offset, std::span<std::byte> bytes)> read;
};

// Reads with pread: a file that shrinks meanwhile is an Error, never a signal. `fd` must stay open as long as
// the source is used. Throws storage.
ByteSource source_of_file(int fd, const std::string& name);
// Returns a source that borrows the bytes.
ByteSource source_of_bytes(std::span<const std::byte> bytes);

struct ElfNote {
  std::string owner;
  std::uint32_t type = 0;
  std::string description;  // raw bytes of the description
};

struct ElfSymbol {
  std::string name;
  bool defined = false;
};

// Every method throws bad_input with a sentence that begins with the file's name.
class ElfFile {
 public:
  // Refuses all but 64-bit little-endian shared libraries.
  ElfFile(ByteSource source, std::string name);

  std::vector<ElfNote> notes() const;
  // Returns the names of DT_NEEDED, in order.
  std::vector<std::string> needed() const;
  // Checks what the dynamic loader takes for granted: where that is not so it ends the process with a message
  // that names no file.
  void check_loadable() const;
  // Returns global and weak dynamic symbols, or nothing if the section headers were removed.
  std::optional<std::vector<ElfSymbol>> dynamic_symbols() const;

 private:
  using Bytes = std::vector<std::byte>;

  // Holds entries of the dynamic section, by their tags.
  using Dynamic = std::map<std::int64_t, std::uint64_t>;

  std::vector<Elf64_Dyn> dynamic_entries() const;
  static Dynamic by_tag(std::span<const Elf64_Dyn> entries);
  Bytes dynamic_strings(const Dynamic& dynamic) const;
  void check_relocations(const Dynamic& dynamic) const;
  void check_versions(const Dynamic& dynamic) const;
  void check_hashes(const Dynamic& dynamic) const;
  Bytes read(std::uint64_t offset, std::uint64_t size, std::uint64_t limit, std::string_view what) const;
  template <class Record>
  std::vector<Record> records(std::uint64_t offset, std::uint64_t count, std::uint64_t limit,
                              std::string_view what) const;
  std::string text_at(const Bytes& strings, std::uint64_t offset) const;
  std::uint64_t offset_of_address(std::uint64_t address) const;
  void append_notes(const Elf64_Phdr& segment, std::uint64_t& budget, std::vector<ElfNote>& notes) const;
  template <class... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const;

  ByteSource source_;
  std::string name_;
  Elf64_Ehdr header_ = {};
  std::vector<Elf64_Phdr> segments_;
};

// Says whether a text is valid UTF-8 without control characters other than `allowed`.
bool is_plain_text(std::string_view text, std::string_view allowed = "");

}  // namespace prun
