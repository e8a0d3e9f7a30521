// The arrows that docs/architecture.md draws between the rooms of core, libs and tools are those of their
// includes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/text.hpp"

namespace prun::test::includes_test {
namespace {

namespace fs = std::filesystem;

using Graph = std::map<std::string, std::set<std::string>>;

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// "assemble → placement, recipe" of the block behind the heading "Which room may include which".
Graph arrows_of(const std::string& document) {
  Graph arrows;
  const std::size_t heading = document.find("## Which room may include which\n");
  const std::size_t begin = document.find("```\n", heading) + 4, end = document.find("```", begin);
  std::istringstream lines(document.substr(begin, end - begin));
  const std::string arrow = "→";
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(arrow);
    std::set<std::string>& targets = arrows[std::string(trim(std::string_view(line).substr(0, at)))];
    if (at == std::string::npos) continue;
    for (const std::string_view target : split(std::string_view(line).substr(at + arrow.size()), ','))
      targets.emplace(trim(target));
  }
  return arrows;
}

// Includes of the project's own files, by file: paths below core, libs or tools, the SDK's as prun/….
void add_includes(const fs::path& top, Graph& includes) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(top)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".hpp" && extension != ".cpp") continue;
    std::string file = fs::relative(entry.path(), top).generic_string();
    if (file.starts_with("include/")) file.erase(0, 8);
    std::set<std::string>& of = includes[file];
    std::istringstream lines(text_of(entry.path()));
    const std::string start = "#include \"";
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(start)) of.insert(line.substr(start.size(), line.rfind('"') - start.size()));
  }
}

// main() brings all together; tools/bench has programs that measure beside others, and is no part of prun.
// Folders of libs/text are rooms by themselves.
Graph includes_of(const fs::path& root) {
  Graph includes;
  for (const char* top : {"core", "libs", "libs/text", "tools"}) add_includes(root / top, includes);
  std::erase_if(includes, [](const auto& file) {
    return file.first == "main.cpp" || file.first.starts_with("bench/") || file.first.starts_with("text/");
  });
  return includes;
}

std::string room_of(const std::string& file) { return fs::path(file).parent_path().generic_string(); }

// What can be reached from a place by one arrow or more.
std::set<std::string> reached(const Graph& graph, const std::string& from) {
  std::set<std::string> found;
  std::vector<std::string> open{from};
  while (!open.empty()) {
    const auto node = graph.find(open.back());
    open.pop_back();
    if (node == graph.end()) continue;
    for (const std::string& next : node->second)
      if (found.insert(next).second) open.push_back(next);
  }
  return found;
}

std::vector<std::string> circles(const Graph& graph) {
  std::vector<std::string> found;
  for (const auto& [from, ignored] : graph)
    if (reached(graph, from).count(from) != 0) found.push_back(from + " includes itself by way of others");
  return found;
}

// Rooms see what their arrows lead to, the SDK's headers, and generated ones; the SDK sees itself.
std::vector<std::string> wrong_arrows(const Graph& arrows, const Graph& includes) {
  std::vector<std::string> wrong;
  for (const auto& [file, included] : includes)
    for (const std::string& other : included) {
      const std::string from = room_of(file), to = room_of(other);
      if (from == to || to == "prun" || reached(arrows, from).count(to) != 0) continue;
      wrong.push_back(file + " includes " + other + ": no arrow leads from " + from + " to " + to);
    }
  return wrong;
}

Graph headers(const Graph& includes) {
  Graph only;
  for (const auto& [file, included] : includes)
    if (file.ends_with(".hpp")) only[file] = included;
  return only;
}

class Includes : public testing::Test {
 protected:
  const fs::path root = PRUN_SOURCE_DIR;
  const Graph arrows = arrows_of(text_of(root / "docs" / "architecture.md"));
  const Graph includes = includes_of(root);
};

TEST_F(Includes, FollowTheArrowsOfTheDocument) {
  for (const std::string& wrong : wrong_arrows(arrows, includes)) ADD_FAILURE() << wrong;
}

TEST_F(Includes, TheDocumentKnowsEveryRoomAndNoOther) {
  std::set<std::string> rooms, known;
  for (const auto& [file, ignored] : includes)
    if (room_of(file) != "prun") rooms.insert(room_of(file));
  for (const auto& [room, ignored] : arrows) known.insert(room);
  EXPECT_EQ(rooms, known);
}

TEST_F(Includes, NeitherArrowsNorHeadersGoInCircles) {
  for (const std::string& circle : circles(arrows)) ADD_FAILURE() << circle;
  for (const std::string& circle : circles(headers(includes))) ADD_FAILURE() << circle;
}

// Whoever can include both would have to look twice; the SDK's are told apart by their folder.
TEST_F(Includes, HeadersInReachOfEachOtherHaveNamesOfTheirOwn) {
  std::map<std::string, std::vector<std::string>> rooms_by_name;
  for (const auto& [file, ignored] : headers(includes))
    if (room_of(file) != "prun") rooms_by_name[fs::path(file).filename().string()].push_back(room_of(file));
  for (const auto& [name, rooms] : rooms_by_name)
    for (const std::string& from : rooms)
      for (const std::string& to : rooms)
        EXPECT_EQ(reached(arrows, from).count(to), 0u) << name << " is in " << from << " and in " << to;
}

TEST_F(Includes, PipelinesKnowNoPluginHost) {
  const std::set<std::string> seen = reached(includes, "plan/pipeline/lay_out_pipeline.cpp");
  EXPECT_NE(seen.count("plan/plan.hpp"), 0u);
  for (const std::string& file : seen) EXPECT_NE(room_of(file), "plugin") << file;
}

TEST_F(Includes, AWrongArrowAndACircleAreFound) {
  Graph wrong = includes;
  wrong["base/text.hpp"].insert("plan/plan.hpp");
  EXPECT_EQ(
      wrong_arrows(arrows, wrong),
      std::vector<std::string>{"base/text.hpp includes plan/plan.hpp: no arrow leads from base to plan"});
  wrong["plan/plan.hpp"].insert("base/text.hpp");
  EXPECT_FALSE(circles(headers(wrong)).empty());
}

// The compiler looks for the standard's headers in these folders first: a script called `format` was read in
// place of <format>.
TEST_F(Includes, NoFileHasTheNameOfAStandardHeader) {
  const std::set<std::string> standard = {
      "any",    "atomic", "barrier", "bit",    "chrono",  "codecvt", "compare", "concepts", "coroutine",
      "format", "future", "latch",   "limits", "list",    "locale",  "map",     "memory",   "mutex",
      "new",    "print",  "queue",   "random", "ranges",  "ratio",   "regex",   "set",      "span",
      "stack",  "string", "thread",  "tuple",  "utility", "variant", "vector",  "version"};
  for (const char* top :
       {"core", "core/include", "libs", "libs/text", "tools", "offload", "plugins/model", "plugins/data"})
    for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(PRUN_SOURCE_DIR) / top))
      EXPECT_FALSE(entry.is_regular_file() && standard.contains(entry.path().filename())) << entry.path();
}

}  // namespace
}  // namespace prun::test::includes_test
