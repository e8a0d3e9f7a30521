// Which samples of which sets a run takes: shares of a blend, epochs, what is kept for validation.
#include "train/loop/samples.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "support/assembly_fixture.hpp"

namespace prun::test::samples_test {
namespace {

constexpr std::int64_t seq = 2;

// Sample i of set s is 1000 s + i twice.
class Marked final : public DataInterface {
 public:
  explicit Marked(std::int32_t set) : set_(set) {}
  Status open(std::int64_t, DataInfo*) noexcept override { return {}; }
  Status read(std::int64_t index, std::int32_t* tokens, std::int32_t* targets) noexcept override {
    std::fill_n(tokens, seq, 1000 * set_ + static_cast<std::int32_t>(index));
    std::fill_n(targets, seq, -1);
    return {};
  }
  Status roles(std::int64_t, std::uint8_t*) noexcept override { return {}; }

 private:
  std::int32_t set_;
};

SampleSet marked(std::int32_t set, std::int64_t first, std::int64_t count, double weight) {
  return {"set", std::make_shared<Marked>(set), {}, weight, first, count};
}

std::vector<std::int32_t> marks(const Samples& samples, std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> marks, tokens(seq), targets(seq);
  for (std::int64_t n = first; n < first + count; ++n) {
    samples.read(n, tokens, targets);
    marks.push_back(tokens[0]);
  }
  return marks;
}

TEST(Blend, EachSetHasItsShareOfEveryPrefix) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<double> weights(1 + random() % 8);
    for (double& weight : weights) weight = std::pow(10.0, std::uniform_real_distribution<>(-4, 4)(random));
    double total = 0;
    for (const double weight : weights) total += weight;
    const Blend blend(weights);
    std::vector<std::int64_t> taken(weights.size(), 0);
    for (std::int64_t n = 0; n < 5000; ++n) {
      const Blend::Place place = blend.place(n);
      ASSERT_LT(place.set, weights.size());
      ASSERT_EQ(place.number, taken[place.set]++) << "sample " << n << " of set " << place.set;
      for (std::size_t set = 0; set < weights.size(); ++set)
        ASSERT_NEAR(static_cast<double>(taken[set]), weights[set] / total * static_cast<double>(n + 1), 2)
            << "set " << set << " after " << n + 1;
    }
  }
}

TEST(Blend, SharesHoldFarIntoARun) {
  const Blend blend(std::vector<double>{0.7, 0.2, 0.1});
  constexpr std::int64_t far = 3'000'000'000'000;
  std::map<std::size_t, std::int64_t> last;
  for (std::int64_t n = far; n < far + 100; ++n) {
    const Blend::Place place = blend.place(n);
    EXPECT_EQ(place.number, last.count(place.set) ? last[place.set] + 1 : place.number);
    last[place.set] = place.number;
  }
  EXPECT_NEAR(static_cast<double>(last[0]), 0.7 * far, 100);
  EXPECT_NEAR(static_cast<double>(last[1]), 0.2 * far, 100);
  EXPECT_NEAR(static_cast<double>(last[2]), 0.1 * far, 100);
}

TEST(Samples, EverySetHasEpochsOfItsOwn) {
  const Samples samples({marked(0, 0, 40, 3), marked(1, 5, 10, 1)}, true, 7, seq, 5000);
  const std::vector<std::int32_t> all = marks(samples, 0, 160);  // three epochs of one, four of the other
  std::map<std::int32_t, int> visits;
  for (const std::int32_t mark : all) ++visits[mark];
  EXPECT_EQ(visits.size(), 50u);
  for (const auto& [mark, count] : visits) EXPECT_EQ(count, mark < 1000 ? 3 : 4) << mark;
  EXPECT_EQ(visits.count(1004), 0u);  // outside of the range that is read
  EXPECT_EQ(visits.count(1005), 1u);
  EXPECT_EQ(marks(samples, 57, 30), std::vector<std::int32_t>(all.begin() + 57, all.begin() + 87));
}

// Equal sets with equal numbers of samples are shuffled apart.
TEST(Samples, SetsAreShuffledEachInItsOwnWay) {
  const Samples samples({marked(0, 0, 50, 1), marked(1, 0, 50, 1)}, true, 7, seq, 5000);
  std::vector<std::int32_t> first, second;
  for (const std::int32_t mark : marks(samples, 0, 100))
    (mark < 1000 ? first : second).push_back(mark % 1000);
  EXPECT_NE(first, second);
}

TEST(Samples, ComeOnceAnEpochAndInAnotherOrderInEach) {
  const SampleOrder order(40, true, 7);
  std::vector<std::vector<std::int64_t>> epochs(3);
  for (std::int64_t n = 0; n < 120; ++n) epochs[static_cast<std::size_t>(n / 40)].push_back(order.index(n));
  for (const std::vector<std::int64_t>& epoch : epochs)
    EXPECT_EQ(std::set<std::int64_t>(epoch.begin(), epoch.end()).size(), 40u);
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(Samples, AloneASetComesAsItAlwaysDid) {
  const SampleOrder order(40, true, 7);
  const Samples samples({marked(0, 0, 40, 0.25)}, true, 7, seq, 5000);
  const std::vector<std::int32_t> all = marks(samples, 0, 120);
  for (std::int64_t n = 0; n < 120; ++n) EXPECT_EQ(all[static_cast<std::size_t>(n)], order.index(n));
}

// Counts from 0 in each sample; every target counts.
class Counting final : public DataInterface {
 public:
  Status open(std::int64_t, DataInfo*) noexcept override { return {}; }
  Status read(std::int64_t, std::int32_t* tokens, std::int32_t* targets) noexcept override {
    for (std::int32_t i = 0; i < 4; ++i) tokens[i] = i, targets[i] = i + 1;
    return {};
  }
  Status roles(std::int64_t, std::uint8_t*) noexcept override { return {}; }
};

TEST(Samples, WhatFollowsADocumentsEndDoesNotCount) {
  const SampleSet set{"set", std::make_shared<Counting>(), {}, 1, 0, 10};
  std::vector<std::int32_t> tokens(4), targets(4);
  Samples({set}, false, 1, 4, 100, 2).read(0, tokens, targets);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{1, 2, -1, 4}));
  Samples({set}, false, 1, 4, 100).read(0, tokens, targets);
  EXPECT_EQ(targets, (std::vector<std::int32_t>{1, 2, 3, 4}));
}

Samples opened(const std::vector<std::string>& sets, const std::string& more, DataPart part) {
  const Assembly assembly(tiny_recipe(sets, more), plugins());
  return open_data(assembly, plugins(), part);
}

std::string message_of(const std::vector<std::string>& sets, const std::string& more, DataPart part) {
  try {
    opened(sets, more, part);
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

constexpr const char* blend = "[[data.blend]]\nplugin = 'ragged'\nweight = 0.5\n";
constexpr const char* apart = "[[validation]]\nplugin = 'ragged'\n";

TEST(OpenData, ValidationIsWhatTrainingLeavesOfEachSet) {
  const Samples training = opened({"data.validation=0.01"}, blend, DataPart::training);
  const Samples validation = opened({"data.validation=0.01"}, blend, DataPart::validation);
  ASSERT_EQ(training.sets().size(), 2u);
  ASSERT_EQ(validation.sets().size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const SampleSet &train = training.sets()[i], &validate = validation.sets()[i];
    EXPECT_EQ(train.first, 0);
    EXPECT_EQ(validate.first, train.count);
    EXPECT_EQ(train.count + validate.count, train.info.samples);
    EXPECT_EQ(validate.count, (train.info.samples + 99) / 100);
  }
  EXPECT_EQ(training.sets()[1].name, "data.blend.0");
  EXPECT_EQ(training.sets()[1].weight, 0.5);
}

TEST(OpenData, ValidationMayHaveSetsOfItsOwn) {
  const Samples training = opened({}, std::string(blend) + apart, DataPart::training);
  const Samples validation = opened({}, std::string(blend) + apart, DataPart::validation);
  EXPECT_EQ(training.sets().size(), 2u);
  EXPECT_EQ(training.sets()[0].count, training.sets()[0].info.samples);
  ASSERT_EQ(validation.sets().size(), 1u);
  EXPECT_EQ(validation.sets()[0].name, "validation.0");
  EXPECT_EQ(validation.sets()[0].count, validation.sets()[0].info.samples);
}

// In the order in which they lie, whatever training does.
TEST(OpenData, ValidationIsNotShuffled) {
  const Samples validation = opened({"data.validation=0.5"}, "", DataPart::validation);
  const SampleSet& set = validation.sets()[0];
  std::vector<std::int32_t> tokens(16), targets(16), direct(16), ignored(16);
  for (std::int64_t n = 0; n < 5; ++n) {
    validation.read(n, tokens, targets);
    raise(set.data->read(set.first + n, direct.data(), ignored.data()));
    EXPECT_EQ(tokens, direct);
  }
}

TEST(OpenData, WhatCannotBeValidatedOnIsRefused) {
  const auto says = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(message_of({}, "", DataPart::validation), "cannot validate: the recipe names no data for it");
  says(message_of({"data.validation=0.1"}, apart, DataPart::training), "leave one of them out");
  says(message_of({"data.validation=0.5", "model.seq=16384"}, "", DataPart::training),
       "none is left to train on");
  EXPECT_EQ(message_of({}, apart, DataPart::training), "(no error)");
}

}  // namespace
}  // namespace prun::test::samples_test
