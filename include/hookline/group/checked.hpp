// A group that compares what the ranks are about to do, before any of them does it.
#pragma once

#include <memory>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline {

/// A group around `group` whose collectives start only when all ranks have called the same one as the same number of
/// its lane: operation, reduction, root, dtype and shapes are compared through `store`, which all ranks share and no
/// other checked group uses. Where they differ, every rank's work fails with a Mismatch that lists all calls, and
/// nothing was changed; where a rank does not come, with a Timeout that names it, and the group is aborted. A send
/// starts, and is done, only when its receive has been called with the same dtype and shape; other ranks are not asked.
/// A recv_anysource takes from the first rank that it finds to have called a send for it, by a recv from there.
/// A thread for each lane, and one for messages, does the comparing, with at most four round trips to the store for
/// each operation beside the time that the ranks wait for each other, and leaves no keys behind but the one by which an
/// abort reaches those who compare, within about 100 ms.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> checked(std::shared_ptr<ProcessGroup> group,
                                                      std::shared_ptr<Store> store);

}  // namespace hookline
