// Reads what a plugin file says about itself in its ELF note of owner PRUN, without running any of its code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/elf_file.hpp"

namespace prun {

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

}  // namespace prun
