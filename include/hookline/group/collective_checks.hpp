// Collective checks: a group wrapper that compares the ranks' calls before it runs them.
#pragma once

#include <memory>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline {

/// Wraps `group`: a collective starts only after all ranks have called the same one at the same position in its lane.
/// Operation, reduction, root, dtype and shapes are compared through `store`. All ranks share the store, and no other
/// checked group uses it. A difference fails every rank's work with a Mismatch that lists all calls; no data is
/// changed. A missing rank fails the work with a Timeout that names it and aborts the group. A send starts only after
/// its recv was called with the same dtype and shape; other ranks do not take part. A recv_anysource receives from the
/// first rank whose matching send it finds in the store. One thread per lane, and one for sends and receives, compares
/// the calls with at most four store round trips per operation. An abort reaches ranks that wait in the store within
/// about 100 ms. The abort key is the only key that remains in the store.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> with_collective_checks(std::shared_ptr<ProcessGroup> group,
                                                                     std::shared_ptr<Store> store);

}  // namespace hookline
