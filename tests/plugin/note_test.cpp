// Reading the PRUN note: what it gives, which sentence says what is wrong, and that no file can crash it.
#include "plugin/note.hpp"

#include <algorithm>
#include <random>

#include "plugin_fixtures.hpp"
#include "prun/plugin.hpp"

namespace prun {
namespace {

using test::error_of;
using test::fixtures;
using test::holds;

constexpr int corruption_trials = 10000;

std::string note_text() {
  return "kind=model\nname=x\nversion=1\nhelp=h = i\ntraits=phase=shard; conflicts=a,b\nepoch=01\nabi=t\n"
         "layout=0123456789abcdef\nsdk=0.1.0\noptions:\na | int | 1 | | A\noptions:\n";
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = note_text();
  return text.replace(text.find(from), from.size(), to);
}

std::string parse_error(const std::string& text) {
  return error_of([&] { parse_note_text(text, "x.so"); });
}

// Whether reading these bytes ends in a note or in an Error; anything else ends the test.
bool reads(const std::string& bytes) {
  try {
    return !read_note(source_of_bytes(std::as_bytes(std::span(bytes))), "x.so").kind.empty();
  } catch (const Error&) {
    return false;
  }
}

TEST(Note, TellsWhatThePluginSays) {
  const PluginNote note = read_note(fixtures() / "libprun_model_good.so");
  EXPECT_EQ(note.kind, "model");
  EXPECT_EQ(note.name, "good");
  EXPECT_EQ(note.version, "1.2.3");
  EXPECT_EQ(note.help, "A plugin for tests");
  EXPECT_EQ(note.epoch, plugin_epoch);
  EXPECT_EQ(note.abi, abi_tag);
  EXPECT_EQ(note.layout, std::string(detail::layout_text.data(), 16));
  EXPECT_EQ(note.sdk, sdk_version);
  EXPECT_TRUE(note.traits.empty());
  EXPECT_EQ(read_note(fixtures() / "libprun_schedule_turns.so").traits,
            (std::map<std::string, std::string>{{"backward", "whole"}}));
  EXPECT_TRUE(note.options.starts_with("layers | int | 12 | 1..4096 | Number of blocks\npath"));
  EXPECT_EQ(incompatibility(note), "");
  EXPECT_EQ(describe(note), "model plugin 'good'");
}

TEST(Note, TellsWhatTheLibraryNeedsAndOffers) {
  const PluginNote note = read_note(fixtures() / "libprun_model_good.so");
  EXPECT_TRUE(note.has_symbol_table);
  EXPECT_EQ(note.exports, std::vector<std::string>{"prun_plugin_v1"});
  EXPECT_EQ(
      std::count(note.needed.begin(), note.needed.end(), "libprun_sdk.so." + std::to_string(plugin_epoch)),
      1);
  EXPECT_EQ(std::count(note.undefined.begin(), note.undefined.end(), "prun_sdk_epoch_10_itanium_libstdcxx11"),
            1);
  EXPECT_GE(note.build_id.size(), 16u);
}

TEST(Note, IsReadWithoutRunningTheLibrary) {
  EXPECT_EQ(read_note(fixtures() / "libprun_model_crashes_on_load.so").name, "crashes_on_load");
}

TEST(Note, TellsApartNoElfNoNoteAndDamage) {
  const test::TempFolder folder;
  test::write_file(folder.path() / "text.so", "#!/bin/sh\necho no\n");
  test::write_file(folder.path() / "empty.so", "");
  const std::string good = test::contents(fixtures() / "libprun_model_good.so");
  test::write_file(folder.path() / "cut.so", good.substr(0, good.size() / 2));
  const auto error = [&](const std::filesystem::path& path) { return error_of([&] { read_note(path); }); };
  EXPECT_TRUE(holds(error(folder.path() / "text.so"), "is not an ELF file"));
  EXPECT_TRUE(holds(error(folder.path() / "empty.so"), "is not an ELF file"));
  EXPECT_TRUE(holds(error(folder.path() / "cut.so"), "is a damaged ELF file"));
  EXPECT_TRUE(holds(error(folder.path() / "none.so"), "cannot open"));
  EXPECT_TRUE(holds(error(fixtures() / "libprun_model_no_note.so"), "has no PRUN note"));
  EXPECT_TRUE(holds(error("/proc/self/exe"), "PRUN"));
}

TEST(Note, RefusesOtherKindsOfElf) {
  std::string bytes = test::contents(fixtures() / "libprun_model_good.so");
  const auto error = [&] {
    return error_of([&] { read_note(source_of_bytes(std::as_bytes(std::span(bytes))), "x.so"); });
  };
  bytes[EI_CLASS] = ELFCLASS32;
  EXPECT_TRUE(holds(error(), "another kind of machine"));
  bytes[EI_CLASS] = ELFCLASS64;
  bytes[16] = ET_EXEC;
  EXPECT_TRUE(holds(error(), "not a shared library"));
}

TEST(NoteText, KeepsOptionsAsTheyAre) {
  const PluginNote note = parse_note_text(note_text(), "x.so");
  EXPECT_EQ(note.help, "h = i");
  EXPECT_EQ(note.options, "a | int | 1 | | A\noptions:\n");
  EXPECT_EQ(note.epoch, 1u);
}

TEST(NoteText, IgnoresKeysOfLaterVersions) {
  EXPECT_EQ(parse_note_text(replaced("abi=t", "abi=t\nlicence=MIT"), "x.so").abi, "t");
}

TEST(NoteText, NamesWhatIsDamaged) {
  EXPECT_TRUE(holds(parse_error(replaced("name=x\n", "")), "lacks the key 'name'"));
  EXPECT_TRUE(holds(parse_error(replaced("name=x", "name=x\nname=y")), "'name' occurs twice"));
  EXPECT_TRUE(holds(parse_error(replaced("name=x", "name=../x")), "'../x' must be"));
  EXPECT_TRUE(holds(parse_error(replaced("kind=model", "kind=Model")), "'Model' must be"));
  EXPECT_TRUE(holds(parse_error(replaced("epoch=01", "epoch=1x")), "epoch '1x' is not a number"));
  EXPECT_TRUE(holds(parse_error(replaced("epoch=01", "epoch=99999999999")), "is not a number"));
  EXPECT_TRUE(holds(parse_error(replaced("0123456789abcdef", "0123")), "layout hash '0123'"));
  EXPECT_TRUE(holds(parse_error(replaced("version=1", "version")), "'version' is no key=value line"));
  EXPECT_TRUE(holds(parse_error(replaced("phase=shard", "phase")), "trait 'phase' is no key=value pair"));
  EXPECT_TRUE(holds(parse_error(replaced("h = i", "\x1b[31m")), "not printable UTF-8"));
  EXPECT_TRUE(holds(parse_error(replaced("h = i", "\xff")), "not printable UTF-8"));
  EXPECT_TRUE(holds(parse_error("kind=model\n"), "no line 'options:'"));
  EXPECT_TRUE(holds(parse_error(""), "no line 'options:'"));
  EXPECT_TRUE(holds(parse_error(replaced("name=x\n", "")), "'x.so' has a damaged PRUN note"));
}

TEST(Compatibility, NamesBothSides) {
  const std::string epoch = incompatibility(read_note(fixtures() / "libprun_model_wrong_epoch.so"));
  EXPECT_TRUE(holds(epoch, "epoch 1 (SDK 0.9.9), this prun has 10 (SDK 0.3.0)"));
  EXPECT_TRUE(holds(epoch, "rebuild it against this prun's SDK"));
  const std::string abi = incompatibility(read_note(fixtures() / "libprun_model_wrong_abi.so"));
  EXPECT_TRUE(holds(abi, "ABI linux-x86_64-other"));
  EXPECT_TRUE(holds(abi, std::string(abi_tag)));
  const std::string layout = incompatibility(read_note(fixtures() / "libprun_model_wrong_layout.so"));
  EXPECT_TRUE(holds(layout, "interface layout 0123456789abcdef"));
  EXPECT_TRUE(holds(layout, std::string(detail::layout_text.data(), 16)));
}

TEST(NoteRobustness, NoTruncationCrashesIt) {
  const std::string good = test::contents(fixtures() / "libprun_model_good.so");
  ASSERT_TRUE(reads(good));
  for (std::size_t size = 0; size < good.size(); size += size < 4096 ? 1 : 37)
    EXPECT_FALSE(reads(good.substr(0, size))) << size << " bytes";
}

// Half of the trials aim at the headers, where damage is read as sizes and offsets.
TEST(NoteRobustness, NoCorruptionCrashesIt) {
  const std::string good = test::contents(fixtures() / "libprun_model_good.so");
  std::mt19937_64 random(20240229);
  int survived = 0, refused = 0;
  for (int trial = 0; trial < corruption_trials; ++trial) {
    std::string bytes = good;
    const std::size_t range = trial % 2 ? bytes.size() : std::min<std::size_t>(1024, bytes.size());
    const auto changes = 1 + random() % 8;
    for (std::uint64_t i = 0; i < changes; ++i) bytes[random() % range] = static_cast<char>(random());
    if (trial % 5 == 0) bytes.resize(random() % bytes.size());
    (reads(bytes) ? survived : refused)++;
  }
  EXPECT_EQ(survived + refused, corruption_trials);
  EXPECT_GT(refused, 0);
  EXPECT_GT(survived, 0);
}

}  // namespace
}  // namespace prun
