// Memory for things of which not all are needed at once.
#include "plan/offsets.hpp"

#include <gtest/gtest.h>

namespace prun::test::offsets_test {
namespace {

TEST(Offsets, ThingsThatConflictLieApartAndOthersTogether) {
  Conflicts conflicts(3);
  conflicts.add(0, 1);
  conflicts.add(1, 2);
  const std::vector<std::int64_t> bytes = {256, 512, 256};
  const Offsets offsets = assign_offsets(bytes, conflicts);
  EXPECT_EQ(offsets.of, (std::vector<std::int64_t>{512, 0, 512}));
  EXPECT_EQ(offsets.bytes, 768);
}

// The last two begin where all begins; the first lies behind the one that it conflicts with, within the
// other.
TEST(Offsets, SomeLieAtZero) {
  Conflicts conflicts(4);
  conflicts.add(0, 1);
  conflicts.add(0, 2);
  const std::vector<std::int64_t> bytes = {256, 512, 300, 4096};
  const Offsets offsets = assign_offsets(bytes, conflicts, 2);
  EXPECT_EQ(offsets.of, (std::vector<std::int64_t>{512, 0, 0, 0}));
  EXPECT_EQ(offsets.bytes, 4096);
  conflicts.add(1, 2);
  EXPECT_EQ(assign_offsets(bytes, conflicts, 2).of, (std::vector<std::int64_t>{1024, 512, 0, 0}));
  conflicts.add(1, 3);
  EXPECT_EQ(assign_offsets(bytes, conflicts, 2).bytes, 4096 + 512);
}

}  // namespace
}  // namespace prun::test::offsets_test
