// Configurations that would take all memory or all time: refused in one sentence.
#include <gtest/gtest.h>

#include "convert/foreign_recipe.hpp"
#include "convert/shell_words.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::bounds_test {
namespace {

std::string refusal(const std::string& name, const std::string& config) {
  const TempFolder folder;
  try {
    convert::convert_file(folder.write(name, config), {}, plugins().catalog());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return "accepted";
}

std::string repeated(const std::string& piece, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += piece;
  return text;
}

TEST(Bounds, VariablesThatDoubleAreRefused) {
  const std::string expands = "its variables expand to more than 1048576 bytes";
  for (const char* twice : {"$%$%", "${%}${%}", "\"$% $%\"", "${none:-$%$%}", "\"${%[@]}\" \"${%[@]}\""}) {
    std::string script = "V0=0123456789\n";
    for (int i = 1; i <= 60; ++i) {
      std::string right = twice;
      for (std::size_t at; (at = right.find('%')) != std::string::npos;)
        right.replace(at, 1, "V" + std::to_string(i - 1));
      script += "V" + std::to_string(i) + "=(" + right + ")\n";
    }
    const std::string said = refusal("train.sh", script + "pretrain_gpt.py --save $V60\n");
    EXPECT_NE(said.find(expands), std::string::npos) << twice << ": " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  EXPECT_NE(refusal("train.sh", "V=0\n" + repeated("V+=$V\n", 60) + "pretrain_gpt.py $V\n").find(expands),
            std::string::npos);
}

TEST(Bounds, NestingIsRefused) {
  EXPECT_NE(refusal("train.sh", "A=" + repeated("${B:-", 100) + repeated("}", 100) + "\n--lr $A")
                .find("expansions are nested deeper than 16"),
            std::string::npos);
  EXPECT_NE(refusal("ds.json", repeated("{\"a\":", 100000)).find("nested deeper than"), std::string::npos);
  EXPECT_NE(refusal("ds.json", "{\"a\":" + repeated("[", 100000)).find("nested deeper than"),
            std::string::npos);
  EXPECT_NE(refusal("t.toml", "[a]\nb = " + repeated("[", 100000)).find("nested value depth"),
            std::string::npos);
}

TEST(Bounds, MoreSettingsThanAnyConfigurationHasAreRefused) {
  std::string json = "{", words = "pretrain_gpt.py";
  for (int i = 0; i < 5000; ++i) {
    json += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
    words += " --k" + std::to_string(i);
  }
  for (const std::string& said : {refusal("ds.json", json + "}"), refusal("train.sh", words)})
    EXPECT_NE(said.find("more than 4096 settings, which is no configuration"), std::string::npos) << said;
  EXPECT_NE(refusal("train.sh", "train.py " + repeated("a ", 100001)).find("it has more than 100000 words"),
            std::string::npos);
  const std::string named = refusal("ds.json", "{\"" + repeated("k", 2000) + "\": {\"a\": 1}}");
  EXPECT_NE(named.find("a name has more than 1024 bytes: kkk"), std::string::npos) << named;
  EXPECT_NE(refusal("train.sh", "--lr 1 " + repeated(" ", 1 << 20)).find("it is larger than 1048576 bytes"),
            std::string::npos);
}

// A default that is put in often does not copy every variable that there is.
TEST(Bounds, ManyDefaultsBesideLargeVariablesAreReadAtOnce) {
  const std::string large = "LARGE=" + repeated("x", 300000) + "\n";
  const convert::ShellCommand command =
      convert::read_shell(large + "A=" + repeated("${n:-y}", 50000) + "\n--name $A", "test");
  ASSERT_EQ(command.arguments.size(), 2u);
  EXPECT_EQ(command.arguments[1], repeated("y", 50000));
}

}  // namespace
}  // namespace prun::test::bounds_test
