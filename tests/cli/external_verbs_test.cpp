// Verbs of third parties: executables prun-VERB on the path.
#include "cli/command_table.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

class ExternalVerbs : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& script, bool executable = true) {
    const fs::path file = folder_.write(name, "#!/bin/sh\n" + script + "\n");
    if (executable) fs::permissions(file, fs::perms::owner_exec, fs::perm_options::add);
  }
  Result call(const std::string& words) const {
    return shell("PATH=" + folder_.path() + ":$PATH; $PRUN " + words);
  }

  TempFolder folder_;
};

TEST_F(ExternalVerbs, AreCalledWithWhatFollowsThem) {
  write("prun-greet", "echo \"$# $1 $2 from $PRUN\"; exit 7");
  const Result result = call("greet --loud 'two words'");
  EXPECT_EQ(result.code, 7);
  EXPECT_EQ(result.out, "2 --loud two words from " + fs::canonical(PRUN_TEST_BINARY).string() + "\n");
  EXPECT_NE(call("help").out.find("prun greet"), std::string::npos);
}

TEST_F(ExternalVerbs, NeverTakeThePlaceOfPrunsOwnOrOfAFile) {
  write("prun-version", "echo foreign");
  EXPECT_EQ(call("version").out.find("huggingface"), std::string::npos);
  EXPECT_EQ(call("help").out.find("on the path"), std::string::npos);
  write("prun-mine", "echo foreign");
  folder_.write("mine", "[run]\n");
  const Result file = shell("PATH=" + folder_.path() + ":$PATH; cd " + folder_.path() + "; $PRUN mine");
  EXPECT_EQ(file.code, 2);
  EXPECT_EQ(file.out.find("huggingface"), std::string::npos) << file.out;
}

TEST_F(ExternalVerbs, AreExecutableAndHavePlainNames) {
  write("prun-draft", "echo foreign", false);
  write("prun-Upper", "echo foreign");
  write("prun-a.b", "echo foreign");
  fs::create_directory(folder_ / "prun-folder");
  for (const char* verb : {"draft", "Upper", "a.b", "folder", "../x"}) {
    const Result result = call(std::string("'") + verb + "'");
    EXPECT_EQ(result.code, 2) << verb;
    EXPECT_EQ(result.out.find("huggingface"), std::string::npos) << verb;
  }
  EXPECT_FALSE(external_verb(""));
  EXPECT_FALSE(external_verb("-draft"));
}

}  // namespace
}  // namespace prun::test
