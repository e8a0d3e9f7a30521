// Times the same collectives as comm_bench with MPI. It is no part of prun's build: tools/bench/comm_vs_mpi
// builds it with mpicxx.
#include <mpi.h>

#include "comm_cases.hpp"

namespace {

using namespace comm_bench;

void run(const Case& c, Buffers& b) {
  const int whole = static_cast<int>(b.whole_count), part = static_cast<int>(b.part_count);
  switch (c.operation) {
    case Operation::all_reduce:
      MPI_Allreduce(b.whole.data(), b.other.data(), whole, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case Operation::all_gather:
      MPI_Allgather(b.part.data(), part, MPI_FLOAT, b.whole.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
      break;
    case Operation::reduce_scatter:
      MPI_Reduce_scatter_block(b.whole.data(), b.part.data(), part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
  }
}

}  // namespace

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank == 0) print_header();
  for (const Case& c : cases()) {
    Buffers buffers(c, ranks);
    const double time = median_microseconds(c.iterations, [&] { run(c, buffers); });
    if (rank == 0) print_row(c, time);
  }
  MPI_Finalize();
}
