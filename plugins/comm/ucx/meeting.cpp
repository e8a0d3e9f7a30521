// Two rounds, since the exchange moves blobs of one size: first the sizes, then the blobs.
#include "meeting.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

namespace prun::ucx {
namespace {

void exchange(const CommGroup& group, const void* mine, std::size_t bytes, void* all) {
  raise(group.exchange->all_gather(group.exchange->context, mine, bytes, all));
}

}  // namespace

std::vector<Member> meet(const CommGroup& group, const std::function<std::vector<std::byte>()>& own_address) {
  std::vector<std::byte> address;
  std::exception_ptr trouble;
  try {
    address = own_address();
  } catch (...) {
    trouble = std::current_exception();
  }

  const auto members = static_cast<std::size_t>(group.size);
  std::vector<std::uint64_t> sizes(members);
  const std::uint64_t size = address.size();  // 0: something is wrong here
  exchange(group, &size, sizeof size, sizes.data());
  if (trouble) std::rethrow_exception(trouble);
  for (std::size_t i = 0; i < members; ++i)
    if (sizes[i] == 0)
      throw_error(ErrorCode::comm_failed, "comm ucx: group ", group.name.view(), ": member ", i,
                  " could not start communication; its own message says why");

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
