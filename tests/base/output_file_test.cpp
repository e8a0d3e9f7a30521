// What a command's output may take the place of.
#include "base/whole_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "prun/error.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::output_file_test {
namespace {

namespace fs = std::filesystem;

const OutputKind kind{"a page", "<page>"};

std::string refusal(const std::string& target) {
  try {
    write_output(target, "<page>new", kind);
    return "none";
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2) << error.what();
    return error.what();
  }
}

TEST(OutputFile, ReplacesNothingAndOlderOnesOfItsKind) {
  const TempFolder folder;
  for (const char* before : {"<page>old", "<page>", "", " < page >\nold"}) {
    const std::string file = folder.write("out", before);
    EXPECT_EQ(refusal(file), "none");
    EXPECT_EQ(read_file(file), "<page>new");
  }
  EXPECT_EQ(refusal(folder / "another"), "none");
  EXPECT_EQ(read_file(folder / "another"), "<page>new");
}

TEST(OutputFile, RefusesWhatElseIsThereAndLeavesIt) {
  const TempFolder folder;
  for (const char* before : {"{\"type\":\"start\"}\n", "<pag", "a", " < pag >"}) {
    const std::string file = folder.write("out", before);
    EXPECT_EQ(refusal(file),
              file + " is there already and is not a page; name another file with --out, or move it away");
    EXPECT_EQ(read_file(file), before);
  }
  EXPECT_NE(refusal(folder.path()).find("is a folder, not a page"), std::string::npos);
}

TEST(OutputFile, ALinkIsAsWhatItLeadsTo) {
  const TempFolder folder;
  const std::string log = folder.write("log.jsonl", "{}"), page = folder.write("page", "<page>old");
  fs::create_symlink(log, folder / "to-log");
  fs::create_symlink(page, folder / "to-page");
  EXPECT_NE(refusal(folder / "to-log"), "none");
  EXPECT_EQ(read_file(log), "{}");
  EXPECT_EQ(refusal(folder / "to-page"), "none");
  EXPECT_EQ(read_file(page), "<page>new");
  EXPECT_TRUE(fs::is_symlink(folder / "to-page"));
}

TEST(OutputFile, AHardLinkKeepsItsOtherName) {
  const TempFolder folder;
  const std::string page = folder.write("page", "<page>old");
  fs::create_hard_link(page, folder / "other");
  EXPECT_EQ(refusal(page), "none");
  EXPECT_EQ(read_file(folder / "other"), "<page>old");
}

}  // namespace
}  // namespace prun::test::output_file_test
