// Times the collectives of the plugin `ucx` between processes of this machine.
//
//   comm_bench [ranks] [chunk KiB] [small KiB] [spin microseconds]
//
// It is built on demand: cmake --build build --target comm_bench. tools/bench/comm_vs_mpi compares with Open
// MPI.
#include "comm_cases.hpp"

#include <cstdlib>

#include "../../tests/comm/ranks.hpp"

namespace {

using namespace comm_bench;
using prun::CommKind;
using prun::CommOp;
using prun::DType;
using prun::Reduction;

CommOp op_of(const Case& c, Buffers& b) {
  switch (c.operation) {
    case Operation::all_reduce:
      return {CommKind::all_reduce, Reduction::sum, DType::f32,   -1,
              b.whole.data(),       b.other.data(), b.whole_count};
    case Operation::all_gather:
      return {CommKind::all_gather, Reduction::sum, DType::f32,  -1,
              b.part.data(),        b.whole.data(), b.part_count};
    case Operation::reduce_scatter:
      return {CommKind::reduce_scatter, Reduction::sum, DType::f32,  -1,
              b.whole.data(),           b.part.data(),  b.part_count};
  }
  return {};
}

void measure(const prun::test::Rank& rank, const prun::test::PluginOptions& options) {
  prun::test::TestComm comm(rank.meshes[0], rank.everyone(), rank.number, options);
  if (rank.number == 0) print_header();
  for (const Case& c : cases()) {
    Buffers buffers(c, rank.size);
    const CommOp op = op_of(c, buffers);
    const std::vector<CommOp> ops = {op};
    const double time = median_microseconds(c.iterations, [&] {
      comm.start(ops);
      comm.finish();
    });
    if (rank.number == 0) print_row(c, time);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int i, int otherwise) { return count > i ? std::atoi(arguments[i]) : otherwise; };
  prun::test::PluginOptions options;
  options = {number(2, options.chunk_kib), number(3, options.small_kib), number(4, 100), true};
  int failures = 0;
  for (const auto& outcome :
       prun::test::run_ranks(number(1, 2), [&](const auto& rank) { measure(rank, options); }))
    if (!outcome.message.empty()) ++failures, std::fprintf(stderr, "%s\n", outcome.message.c_str());
  return failures > 0;
}
