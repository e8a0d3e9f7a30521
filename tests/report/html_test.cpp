// What is a text stays one, and few points look like many.
#include "report/page.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "prun/error.hpp"

namespace prun::test {
namespace {

TEST(Html, TextsAndAttributesAreEscaped) {
  Html page;
  page.open("p", {{"title", "\"'><b>"}}).text("<script>&amp;\x01\x80\xE2\x80\xAEx").close();
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(page.take(),
            "<p title=\"&quot;&#39;&gt;&lt;b&gt;\">&lt;script&gt;&amp;amp;" + r + r + r + "x</p>");
}

TEST(Html, JsonCannotEndItsElement) {
  EXPECT_EQ(escaped_json("[\"</script><!--\"]"), "[\"\\u003c/script>\\u003c!--\"]");
}

TEST(Html, ElementsAreClosed) {
  Html page;
  page.open("p");
  EXPECT_THROW(page.take(), Error);
  EXPECT_THROW(Html().close(), Error);
}

TEST(PointsToShow, ExtremesStay) {
  const auto value = [](std::size_t i) { return i == 77'777 ? 9.0 : i == 123 ? -9.0 : std::sin(0.001 * i); };
  const std::vector<std::size_t> shown = points_to_show(100'000, 100, value);
  EXPECT_LE(shown.size(), 500u);
  EXPECT_TRUE(std::is_sorted(shown.begin(), shown.end()));
  for (const std::size_t must : {0, 99'999, 77'777, 123})
    EXPECT_TRUE(std::binary_search(shown.begin(), shown.end(), must)) << must;
}

TEST(PointsToShow, WhatIsNotFiniteStaysAndFewAreAll) {
  const auto value = [](std::size_t i) { return i == 5'000 ? std::nan("") : 1.0; };
  const std::vector<std::size_t> shown = points_to_show(10'000, 10, value);
  EXPECT_TRUE(std::binary_search(shown.begin(), shown.end(), 5'000u));
  EXPECT_EQ(points_to_show(40, 10, value).size(), 40u);
}

}  // namespace
}  // namespace prun::test
