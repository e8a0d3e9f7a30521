// Reads what a plugin file says about itself in its ELF note of owner PRUN, without running any of its code.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prun/error.hpp"

namespace prun {

// ------------------------------------------------------------------- elf file
// Reads what prun needs to know of a shared library without running it: notes, needed libraries, dynamic
// symbols. The file may be anything, even hostile: every offset and size is checked against the file and
// against a limit before it is used, and every text that comes out is printable UTF-8.

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

// ------------------------------------------------------------------- note

struct PluginNote {
  std::string kind, name, version, help;
  std::map<std::string, std::string>
      traits;  // from "phase=shard; conflicts=a,b": phase -> shard, conflicts -> a,b
  std::uint32_t epoch = 0;
  std::string abi;
  std::string layout;  // 16 hexadecimal digits
  std::string sdk;
  std::string options;  // schema as text, one option a line

  std::string build_id;                // hexadecimal; empty if the linker wrote none
  std::vector<std::string> needed;     // names of needed libraries
  bool has_symbol_table = false;       // false if they were removed, so that the next two are unknown
  std::vector<std::string> exports;    // dynamic symbols that it defines
  std::vector<std::string> undefined;  // dynamic symbols that it expects from others
};

// Returns a text such as "model plugin 'gpt'".
std::string describe(const PluginNote& note);

// Lists all kinds.
std::span<const std::string_view> plugin_kinds();

// Says whether a text is a kind or a name: 1 to 64 of a-z, 0-9, '-' and '_', beginning with a letter or
// digit.
bool is_plugin_word(std::string_view text);

// These read a note. Each throws bad_input with one of three sentences: no ELF file; no PRUN note, so no
// plugin; damaged, and how. `name` is what messages call the file.
PluginNote read_note(const ByteSource& source, const std::string& name);
PluginNote read_note(int fd, const std::string& name);
PluginNote read_note(const std::filesystem::path& path);

// Parses the text inside the note.
PluginNote parse_note_text(std::string_view text, const std::string& name);

// ------------------------------------------------------------------- compatibility
// Checks whether a plugin was built against an SDK that fits this prun.

// Returns an empty text when epoch, ABI tag and layout hash equal the core's; otherwise a sentence that names
// both sides.
std::string incompatibility(const PluginNote& note);

}  // namespace prun
