#include "plan/memory/bucket_homes.hpp"

namespace prun {
namespace {

class BucketHomes {
 public:
  BucketHomes(const Program& program, const Bucket& bucket, std::int32_t first_instance, HomeRoom& room,
              Homes& homes, Homes& around)
      : program_(program),
        bucket_(bucket),
        first_instance_(first_instance),
        room_(room),
        homes_(homes),
        around_(around) {}

  void place() {
    if (bucket_.squares.empty())
      place_parameters();
    else
      place_squares();
    place_copy();
    if (bucket_.all_gradients == none) return;  // frozen parameters
    std::vector<Id> gradients;
    for (Id id : bucket_.parameters) gradients.push_back(program_.value(id).gradient);
    const Address whole = place_members(bucket_.kept.gradients ? Region::unreduced : Region::gradient,
                                        gradients, bucket_.all_gradients, bucket_.own_gradients);
    if (bucket_.own_sums != none) place_part(bucket_.own_sums, whole, bucket_.axis);
    for (const Bucket::Padding& padding : bucket_.padding)
      place_within(padding.view, padding.offset * size_of(program_.value(padding.view).dtype), whole);
  }

 private:
  void place_parameters() {
    const Address parameters =
        place_members(bucket_.kept.parameters ? Region::gathered : Region::parameter, bucket_.parameters,
                      bucket_.all_parameters, bucket_.own_parameters);
    place_codes();
    if (bucket_.own_fetched != none) place_part(bucket_.own_fetched, parameters, bucket_.axis);
  }

  // Places members' codes, a byte for each element of the bucket, and what a step makes them from.
  void place_squares() {
    const Address whole = place_whole(Region::gathered, bucket_.all_codes);
    for (std::size_t i = 0; i < bucket_.squares.size(); ++i)
      place_within(bucket_.squares[i], bucket_.offsets[i], whole);
    place_whole(Region::parameter, bucket_.peaks);
    if (bucket_.copy == none) place_whole(Region::parameter, bucket_.own_codes);
  }

  // Places the members, and returns the bytes of all of them.
  Address place_members(Region region, const std::vector<Id>& members, Id all, Id own) {
    const Address whole = place_whole(region, all);
    for (std::size_t i = 0; i < members.size(); ++i)
      place_within(members[i], bucket_.offsets[i] * size_of(program_.value(all).dtype), whole);
    if (program_.value(own).role == Role::view) place_part(own, whole, bucket_.axis);
    return whole;
  }

  // Places codes for as long as the values they stand for. The rank's own lie in their place in the copy, if
  // there is one.
  void place_codes() {
    if (bucket_.all_codes == none) return;
    const Address whole = place_whole(Region::gathered, bucket_.all_codes);
    if (bucket_.own_codes != bucket_.all_codes && bucket_.copy == none)
      place_part(bucket_.own_codes, whole, bucket_.axis);
  }

  void place_copy() {
    if (bucket_.copy == none) return;
    const Address whole = place_whole(Region::parameter, bucket_.copy);
    if (bucket_.own_codes != none) place_part(bucket_.own_codes, whole, bucket_.copied_from);
  }

  Address place_whole(Region region, Id all) {
    Address whole = room_.take(all, region, bucket_.segment);
    if (program_.segment(bucket_.segment).repeat == 1) {
      whole.whose = Whose::fixed;
      whole.instance = first_instance_;
    }
    set_home(all, whole, whole);
    return whole;
  }

  void place_within(Id value, std::int64_t offset, const Address& whole) {
    Address within = whole;
    within.offset += offset;
    within.bytes = program_.local_bytes(value);
    set_home(value, within, whole);
  }

  void place_part(Id own, const Address& whole, AxisId axis) {
    Address part = whole;
    part.bytes = program_.local_bytes(own);
    part.part_axis = axis;
    set_home(own, part, whole);
  }

  void set_home(Id value, const Address& address, const Address& around) {
    homes_[value] = address;
    around_[value] = around;
  }

  const Program& program_;
  const Bucket& bucket_;
  const std::int32_t first_instance_;
  HomeRoom& room_;
  Homes& homes_;
  Homes& around_;
};

}  // namespace

void place_bucket(const Program& program, const Bucket& bucket, std::int32_t first_instance, HomeRoom& room,
                  Homes& homes, Homes& around) {
  BucketHomes(program, bucket, first_instance, room, homes, around).place();
}

}  // namespace prun
