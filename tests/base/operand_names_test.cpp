// Ops name their operands and attributes (prun/named_operands.hpp): a number in a rule, a kernel or a launch
// means another operand as soon as one is put in front of it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace prun::test::operand_names_test {
namespace {

namespace fs = std::filesystem;

// Folders without ops.
const std::set<std::string> no_ops = {"cpu", "cuda", "random"};

// Says whether a line takes an operand or an attribute by its number, or by a number added to another one's,
// or gives the array of all of them a name, by which such numbers would follow; or whether it emits an op
// with operands in a row rather than by name (prun/named_gradient.hpp).
bool has_number(const std::string& line) {
  static const std::regex number(
      "\\b(operand|operands|attrs)\\[(\\w+ [+-] )?[0-9]"
      "|= args\\.(operands|attrs)[,;]"
      "|<[^<>()]*>\\(args, (\\w+ [+-] )?[0-9]"
      "|\\.(like|output|scalar|keep_own|begins|changed|arrived|wanted|bind|keep|accumulator|input)\\([0-9]"
      "|\\.(sum|max|whole|pass)\\([0-9]+, "
      "|\\b(pass_partial|pass_maximum|inputs|weight)\\(\\{[0-9]"
      "|\\b(same_type|have_type|computed_type)\\([^{}()]*\\{[0-9]"
      "|\\b(all_double|by_sum)\\(\\w+, [0-9]"
      "|\\bg\\.(input|inputs|weight)\\(");
  return std::regex_search(line.substr(0, line.find("//")), number);
}

// Numbered lines of a folder's definitions, kernels for CPUs and launches; kernels of GPUs get pointers.
std::vector<std::string> numbered_lines(const fs::path& folder) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    if ((extension != ".hpp" && extension != ".cpp") || name.starts_with("cuda") || name == "example.cpp")
      continue;
    std::ifstream lines(entry.path());
    int number = 0;
    for (std::string line; std::getline(lines, line);)
      if (++number; has_number(line)) found.push_back(name + ":" + std::to_string(number) + ": " + line);
  }
  return found;
}

TEST(OperandNames, NoOpTakesAnOperandByItsNumber) {
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(PRUN_SOURCE_DIR) / "kernels")) {
    const std::string folder = entry.path().filename().string();
    if (!entry.is_directory() || no_ops.contains(folder)) continue;
    for (const std::string& line : numbered_lines(entry.path()))
      ADD_FAILURE() << "kernels/" << folder << "/" << line;
  }
}

TEST(OperandNames, NoFusionTakesAnOperandByItsNumber) {
  for (const std::string& line : numbered_lines(fs::path(PRUN_SOURCE_DIR) / "plugins/device/cuda"))
    ADD_FAILURE() << "plugins/device/cuda/" << line;
}

TEST(OperandNames, NumbersAreFound) {
  for (const char* line : {"const Tensor& x = args.operands[0];", "s.operand[q + 1].rank", "args.attrs[2].f",
                           "data<const T>(args, 1)", "const Tensor* o = args.operands;", "s.like(1, 0);",
                           "s.whole(0, 1, 2);", "s.pass_partial({0});", "g.input(0, \"grad\", {})",
                           "g.weight({\"bias\"}, \"bias_grad\", {dy});", "same_type(s, {0, 1})"})
    EXPECT_TRUE(has_number(line)) << line;
  for (const char* line : {"op[\"x\"].dim[0]", "s.like(\"y\", \"x\");", "x.inner(1)", "s.whole(\"x\", 0, 1);",
                           "block_attrs[0]", "args.operands[i]", "x; // operand[0]"})
    EXPECT_FALSE(has_number(line)) << line;
}

}  // namespace
}  // namespace prun::test::operand_names_test
