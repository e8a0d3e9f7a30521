// The pages of docs by themselves: links and headings are there, nothing stands alone, what is generated is
// current, and pages that are to be short are.
#include "documents.hpp"

#include <cctype>
#include <regex>
#include <set>

#include "binary.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

// As a reader's page calls a heading: small letters, blanks as "-", without what is no letter, digit, "-" or
// "_".
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (c == ' ') anchor += '-';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return anchor;
}

// Of the headings outside blocks.
std::set<std::string> anchors_in(const fs::path& document) {
  std::set<std::string> anchors;
  std::istringstream lines(document_text(document));
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) inside = !inside;
    const std::size_t words = line.find_first_not_of('#');
    if (!inside && words != 0 && words != std::string::npos && line[words] == ' ')
      anchors.insert(anchor_of(line.substr(words + 1)));
  }
  return anchors;
}

struct DocumentLink {
  std::string from, path, anchor;  // both from the source's folder on; the anchor may be empty
};

std::vector<DocumentLink> links_of_documents() {
  static const std::regex link("\\]\\(([^): ]+)\\)");
  std::vector<DocumentLink> links;
  for (const std::string& page : all_documents()) {
    const std::string text = document_text(document_root / page);
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      const std::string target = (*at)[1].str(), path = target.substr(0, target.find('#'));
      const std::size_t hash = target.find('#');
      links.push_back(
          {page, path.empty() ? page : (fs::path(page).parent_path() / path).lexically_normal().string(),
           hash == std::string::npos ? "" : target.substr(hash + 1)});
    }
  }
  return links;
}

TEST(Documents, LinksLeadToFilesAndHeadings) {
  const std::vector<DocumentLink> links = links_of_documents();
  int headings = 0;
  for (const auto& [from, path, anchor] : links) {
    EXPECT_TRUE(fs::exists(document_root / path)) << from << " leads to " << path;
    if (anchor.empty()) continue;
    EXPECT_EQ(anchors_in(document_root / path).count(anchor), 1u)
        << from << " leads to " << path << "#" << anchor;
    ++headings;
  }
  EXPECT_GE(links.size(), 200u);
  EXPECT_GE(headings, 15);
}

// Figures' pages and single examples are reached from their lists; the site's navigation has the lists.
bool is_beside_the_navigation(const std::string& page) {
  return page.starts_with("docs/measured/") ||
         (page.starts_with("examples/plugins/") && page != "examples/plugins/README.md");
}

TEST(Documents, EveryPageIsReachedFromTheReadmeAndStandsInTheSite) {
  std::set<std::string> reached = {"README.md"};
  const std::vector<DocumentLink> links = links_of_documents();
  for (std::size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const auto& [from, path, anchor] : links)
      if (reached.count(from) != 0) reached.insert(path);
  }
  const std::string site = document_text(document_root / "mkdocs.yml");
  for (const std::string& page : all_documents()) {
    EXPECT_EQ(reached.count(page), 1u) << page;
    EXPECT_NE(site.find(" " + page + "\n") == std::string::npos, !is_beside_the_navigation(page))
        << page << ": mkdocs.yml";
  }
}

TEST(Documents, PagesThatAreReadFirstAreShort) {
  for (const auto& [page, most] : {std::pair("README.md", 120),
                                   {"docs/benchmarks.md", 200},
                                   {"docs/performance.md", 20},
                                   {"docs/architecture.md", 150}}) {
    const std::string text = document_text(document_root / page);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), most) << page;
  }
}

// What was aimed at is in docs/measured/aims.md.
TEST(Documents, BenchmarksAreNoDiary) {
  const std::string text = document_text(document_root / "docs/benchmarks.md");
  for (const char* const word : {"missed", " aim", ": met"})
    EXPECT_EQ(text.find(word), std::string::npos) << word;
}

// By what a person wants, once each.
TEST(Documents, EveryRecipeIsSorted) {
  const std::string page = document_text(document_root / "configs/README.md");
  int recipes = 0;
  for (const auto& entry : fs::directory_iterator(document_root / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    const std::string link = "](" + entry.path().filename().string() + ")";
    const std::size_t at = page.find(link);
    EXPECT_NE(at, std::string::npos) << link;
    EXPECT_EQ(page.find(link, at + 1), std::string::npos) << link;
    ++recipes;
  }
  EXPECT_GE(recipes, 30);
}

// Each figure of today has its page, and none of the pages is left out.
TEST(Documents, EveryPageOfMeasurementsIsListed) {
  const std::string list = document_text(document_root / "docs/measured/index.md");
  int pages = 0;
  for (const auto& entry : fs::directory_iterator(document_root / "docs/measured")) {
    const std::string name = entry.path().filename().string();
    if (name == "index.md") continue;
    EXPECT_NE(list.find("| [" + name + "](" + name + ") |"), std::string::npos) << name;
    ++pages;
  }
  EXPECT_GE(pages, 33);
}

TEST(Documents, TheStepThatIsFollowedIsTodays) {
  if (!PRUN_TEST_ALL_SETS) GTEST_SKIP() << "the page is of kernels that this build leaves out";
  const Result written = shell(PRUN_SOURCE_DIR "/tools/maintainer/step-page $PRUN");
  ASSERT_EQ(written.code, 0) << written.out;
  EXPECT_EQ(written.out, document_text(document_root / "docs/step.md"))
      << "run: tools/maintainer/step-page build/bin/prun > docs/step.md";
}

TEST(Documents, PicturesAreThoseThatThePlansOfTodayGive) {
  if (!PRUN_TEST_ALL_SETS) GTEST_SKIP() << "the pictures are of kernels that this build leaves out";
  const fs::path folder = temporary_folder() / "pictures";
  const Result drawn = shell(PRUN_SOURCE_DIR "/tools/maintainer/pictures $PRUN " + folder.string());
  ASSERT_EQ(drawn.code, 0) << drawn.out;
  int pictures = 0;
  for (const auto& entry : fs::directory_iterator(document_root / "docs/pictures")) {
    const std::string picture = document_text(entry.path());
    EXPECT_EQ(document_text(folder / entry.path().filename()), picture)
        << "run: tools/maintainer/pictures build/bin/prun, for " << entry.path().filename();
    EXPECT_NE(picture.find("<rect"), std::string::npos) << entry.path();
    ++pictures;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), pictures);
  EXPECT_GE(pictures, 6);
}

// At 1280 and at 390 pixels, on the pages with the widest tables and code.
TEST(Site, NothingIsWiderThanTheScreen) {
  const bool browser =
      shell("command -v chromium || command -v chromium-browser || command -v google-chrome").code == 0;
  if (!browser) GTEST_SKIP() << "no Chromium is here";
  if (!fs::exists(document_root / "build-site/pages/index.html"))
    GTEST_SKIP() << "tools/site has not built the pages here";
  const Result checked = shell(PRUN_SOURCE_DIR "/tools/site --check");
  EXPECT_EQ(checked.code, 0) << checked.out;
}

// Whoever asks where something is done is not sent to a file that has moved on.
TEST(Documents, TheArchitectureAnswersFifteenQuestionsByFilesThatExist) {
  const std::string text = document_text(document_root / "docs/architecture.md");
  const std::size_t begin = text.find("## Fifteen questions"),
                    end = text.find("## Which room may include which");
  ASSERT_LT(begin, end);
  const std::string questions = text.substr(begin, end - begin);
  const std::regex row("\n\\| [A-Z][^|]*\\? \\|"),
      place("`((?:core|kernels|offload|plugins|tests|tools)/[^`]+)`");
  EXPECT_EQ(
      std::distance(std::sregex_iterator(questions.begin(), questions.end(), row), std::sregex_iterator()),
      15);
  for (std::sregex_iterator at(questions.begin(), questions.end(), place), last; at != last; ++at)
    EXPECT_TRUE(fs::exists(document_root / (*at)[1].str())) << (*at)[1];
}

// By their whole path or its end. A tutorial's files are its reader's, and a measurement's are those of its
// day.
TEST(Documents, SourcesThatAreNamedAreThere) {
  std::vector<std::string> sources;
  for (const char* top : {"core", "examples", "kernels", "libs", "offload", "plugins", "tests", "tools"})
    for (const auto& entry : fs::recursive_directory_iterator(document_root / top))
      sources.push_back("/" + fs::relative(entry.path(), document_root).generic_string());
  const std::regex named("`([A-Za-z0-9_./-]+/[A-Za-z0-9_.-]+\\.(?:cpp|hpp|cu|cuh))`");
  int found = 0;
  for (const std::string& page : all_documents()) {
    if (page.starts_with("docs/measured/") || page.starts_with("docs/tutorials/")) continue;
    const std::string text = document_text(document_root / page);
    for (std::sregex_iterator at(text.begin(), text.end(), named), last; at != last; ++at, ++found) {
      const std::string end = "/" + (*at)[1].str();
      EXPECT_TRUE(std::any_of(sources.begin(), sources.end(),
                              [&](const std::string& source) { return source.ends_with(end); }))
          << page << " names " << (*at)[1];
    }
  }
  EXPECT_GE(found, 100);
}

// Walks name files from core, libs or tools on, and others from the source's folder on or beside the one
// before.
TEST(Documents, WalksGoThroughFilesThatExist) {
  const std::string text = document_text(document_root / "docs/walks.md");
  const std::regex place("`([a-z_]+(?:/[a-z_0-9]+)*\\.[ch]pp)`");
  fs::path before;
  int files = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), place), last; at != last; ++at, ++files) {
    const std::string name = (*at)[1];
    const fs::path places[] = {document_root / "core" / name, document_root / "libs" / name,
                               document_root / "tools" / name, document_root / name, before / name};
    const auto found = std::find_if(std::begin(places), std::end(places),
                                    [](const fs::path& each) { return fs::exists(each); });
    ASSERT_NE(found, std::end(places)) << name;
    before = found->parent_path();
  }
  EXPECT_GE(files, 20);
}

}  // namespace
}  // namespace prun::test
