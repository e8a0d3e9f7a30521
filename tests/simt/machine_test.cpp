// What the device that is the host finds, and what it leaves in peace.
#include <fstream>

#include "tests/cuda/device_value.hpp"
#include "tests/simt/broken.hpp"

namespace {

using namespace prun;
using namespace prun::test;
using simt_test::Barrier, simt_test::Turn;

template <class Launch>
std::string failure_of(Launch launch) {
  try {
    launch();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The line of broken.cu that has this in it.
std::string line_of(const std::string& code) {
  std::ifstream file(PRUN_SOURCE_DIR "/tests/simt/broken.cu");
  int number = 1;
  for (std::string line; std::getline(file, line); ++number)
    if (line.find(code) != std::string::npos) return "broken.cu:" + std::to_string(number);
  return "no such line";
}

void expect_names(const std::string& failure, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(failure.find(part), std::string::npos) << part << " is not in: " << failure;
}

TEST(Machine, TurnsNumbersAround) {
  Value numbers(DType::f64, {192});
  for (std::size_t i = 0; i < 192; ++i) numbers.set(i, static_cast<double>(i));
  OnDevice held(numbers);
  simt_test::turn_around(Turn::right, held.as<double>(), 3, nullptr);
  const Value turned = held.value();
  for (std::size_t i = 0; i < 192; ++i) EXPECT_EQ(turned[i], static_cast<double>(i / 64 * 64 + 63 - i % 64));
}

std::string turning_failure(Turn how) {
  OnDevice numbers(Value(DType::f64, {192}));
  return failure_of([&] { simt_test::turn_around(how, numbers.as<double>(), 3, nullptr); });
}

TEST(Machine, FindsAMissingBarrier) {
  expect_names(turning_failure(Turn::without_barrier),
               {line_of("mine[me] = held"), "turn_around", "reads shared memory"});
}

TEST(Machine, FindsMemoryThatIsWrittenAgainTooEarly) {
  expect_names(turning_failure(Turn::too_early_again),
               {"broken.cu:", "shared memory", "without a barrier between"});
  OnDevice to(DType::f64, {64});
  EXPECT_EQ(failure_of([&] { simt_test::change_what_is_read(true, to.as<double>(), nullptr); }), "");
  EXPECT_EQ(to.value().numbers(), std::vector<double>(64, 1));
  expect_names(failure_of([&] { simt_test::change_what_is_read(false, to.as<double>(), nullptr); }),
               {line_of("number = 2"), "thread 0 writes shared memory that another thread reads"});
}

TEST(Machine, FindsSharedMemoryThatNobodyHasWritten) {
  expect_names(turning_failure(Turn::of_unwritten),
               {line_of("mine[me] = held"), "nobody in its block has written"});
}

TEST(Machine, FindsAnAccessBeyondSharedMemory) {
  expect_names(turning_failure(Turn::beyond), {line_of("? me + 1 : me] ="), "beyond the shared memory"});
}

TEST(Machine, FindsBarriersThatNotAllReach) {
  expect_names(
      failure_of([] { simt_test::wait(Barrier::by_half, nullptr); }),
      {line_of("if (threadIdx.x % 2 == 0) __syncthreads();"), "thread 0 waits", "thread 1 has ended"});
  expect_names(failure_of([] { simt_test::wait(Barrier::at_two_places, nullptr); }),
               {"broken.cu:", "thread 1 waits here, and others at"});
  expect_names(failure_of([] { simt_test::wait(Barrier::after_some_ended, nullptr); }),
               {"thread 0 waits", "thread 50 has ended"});
  expect_names(failure_of([] { simt_test::exchange_by_half(nullptr); }),
               {line_of("__shfl_xor_sync"), "thread 0 waits", "thread 16 has ended"});
}

TEST(Machine, GoesOnAfterAFailure) {
  EXPECT_NE(failure_of([] { simt_test::wait(Barrier::by_half, nullptr); }), "");
  OnDevice sum(number(1));
  simt_test::add_ones(true, sum.as<double>(), nullptr);
  EXPECT_EQ(sum.value()[0], 121);
}

TEST(Machine, FindsThreadsThatAddToOneNumberUnlessAtomically) {
  OnDevice sum(number(0));
  expect_names(failure_of([&] { simt_test::add_ones(false, sum.as<double>(), nullptr); }),
               {line_of("*sum += 1.0"), "thread 1 reads memory that thread 0 writes"});
}

TEST(Machine, FindsWhatBlocksTellEachOther) {
  OnDevice numbers(Value(DType::f64, {5}));
  expect_names(failure_of([&] { simt_test::pass_on(numbers.as<double>(), nullptr); }),
               {line_of("numbers[blockIdx.x + 1]"), "another block writes"});
}

TEST(Machine, FindsACopyThatNobodyWaitedFor) {
  OnDevice from(Value(DType::f64, {64})), to(DType::f64, {64});
  simt_test::copy(true, from.as<double>(), to.as<double>(), nullptr);
  EXPECT_EQ(to.value().numbers(), std::vector<double>(64, 0));
  expect_names(failure_of([&] { simt_test::copy(false, from.as<double>(), to.as<double>(), nullptr); }),
               {line_of("to[at] = held[at]"), "nobody in its block has written"});
}

// Beside every value of a test lies poison.
TEST(Machine, FindsMemoryThatNobodyHasWritten) {
  OnDevice never(DType::f64, {}), nor_this(DType::f64, {}), from(Value(DType::f64, {63})),
      to(DType::f64, {64});
  expect_names(failure_of([&] { simt_test::add_ones(false, never.as<double>(), nullptr); }),
               {line_of("*sum += 1.0"), "reads memory that nobody has written"});
  expect_names(failure_of([&] { simt_test::add_ones(true, nor_this.as<double>(), nullptr); }),
               {line_of("atomicAdd"), "reads memory that nobody has written"});
  expect_names(failure_of([&] { simt_test::copy(true, from.as<double>(), to.as<double>(), nullptr); }),
               {line_of("wait_copies"), "thread 31 reads memory that nobody has written"});
}

TEST(Machine, RefusesBlocksThatAreTooLarge) {
  OnDevice numbers(Value(DType::f64, {1}));
  expect_names(failure_of([&] { simt_test::turn_around(Turn::right, numbers.as<double>(), 0, nullptr); }),
               {"cannot be launched"});
}

}  // namespace
