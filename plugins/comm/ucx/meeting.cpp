// A meeting takes two rounds, since the exchange moves blobs of one size: first the sizes, then the blobs.
#include "meeting.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

namespace prun::ucx {
namespace {

void exchange(const CommGroup& group, const void* mine, std::size_t bytes, void* all) {
  raise(group.exchange->all_gather(group.exchange->context, mine, bytes, all));
}

// Runs the action, then exchanges `size` as it then is: 0 says that something went wrong here.
std::vector<std::uint64_t> run_and_share(const CommGroup& group,
                                         const std::function<std::uint64_t()>& action) {
  std::uint64_t size = 0;
  std::exception_ptr trouble;
  try {
    size = action();
  } catch (...) {
    trouble = std::current_exception();
  }
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(group.size));
  exchange(group, &size, sizeof size, sizes.data());
  if (trouble) std::rethrow_exception(trouble);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 0)
      throw_error(ErrorCode::comm_failed, "comm ucx: group ", group.name.view(), ", member ", i,
                  ": it could not start communication; its own message says why");
  return sizes;
}

}  // namespace

void all_do(const CommGroup& group, const std::function<void()>& action) {
  run_and_share(group, [&] {
    action();
    return std::uint64_t{1};
  });
}

std::vector<Member> meet(const CommGroup& group, const std::function<std::vector<std::byte>()>& own_address) {
  const auto members = static_cast<std::size_t>(group.size);
  std::vector<std::byte> address;
  const std::vector<std::uint64_t> sizes = run_and_share(group, [&] {
    address = own_address();
    return std::uint64_t{address.size()};
  });

  const std::size_t blob = sizeof(ProcessId) + *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::byte> mine(blob), all(blob * members);
  const ProcessId process = ProcessId::own();
  std::memcpy(mine.data(), &process, sizeof process);
  std::memcpy(mine.data() + sizeof process, address.data(), address.size());
  exchange(group, mine.data(), blob, all.data());

  std::vector<Member> found(members);
  for (std::size_t i = 0; i < members; ++i) {
    const std::byte* at = all.data() + i * blob;
    std::memcpy(&found[i].process, at, sizeof(ProcessId));
    found[i].address.assign(at + sizeof(ProcessId), at + sizeof(ProcessId) + sizes[i]);
  }
  return found;
}

}  // namespace prun::ucx
