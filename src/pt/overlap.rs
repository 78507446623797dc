//! Finds the overlap of two snapshots of a ring buffer with a trace. They overlap if the ring was
//! read again before all of it was overwritten.

use super::find_psb;

/// A prime below 2^61, so that hashes are unlikely to collide by accident.
const MODULUS: u128 = (1 << 61) - 1;
const BASE: u128 = 0x0123_4567_89ab_cdef;

/// Returns the size in bytes of the longest end of `earlier` that is the start of `later`, maybe
/// all of one or both. Returns 0 if that contains no whole PSB, since the bytes could be equal by
/// chance; also, very rarely, if the hashes of a larger size collide.
#[must_use]
pub fn overlap(earlier: &[u8], later: &[u8]) -> usize {
    let (mut front, mut back, mut power) = (0_u128, 0_u128, 1_u128);
    let mut longest = 0;
    // The hashes of the first and of the last bytes, one byte longer each time.
    for (size, (first, last)) in (1..).zip(later.iter().zip(earlier.iter().rev())) {
        front = (front * BASE + u128::from(*first) + 1) % MODULUS;
        back = (back + (u128::from(*last) + 1) * power) % MODULUS;
        power = power * BASE % MODULUS;
        if front == back {
            longest = size;
        }
    }
    let common = later.get(..longest).unwrap_or_default();
    let has_psb = find_psb(common, 0).is_some();
    if has_psb && earlier.ends_with(common) { longest } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn what_two_snapshots_share_is_found() {
        let psb: Vec<u8> = [0x02, 0x82].repeat(8);
        let ring: Vec<u8> = (0..40_u8).flat_map(|n| [&psb[..], &[n, n, 0x00]].concat()).collect();
        assert_eq!(overlap(&ring[..400], &ring[100..]), 300);
        assert_eq!(overlap(&ring[..400], &ring[..]), 400);
        assert_eq!(overlap(&ring[100..400], &ring[400..]), 0);
        assert_eq!(overlap(&ring, &ring), ring.len());
        // A common zero byte is too short to count.
        assert_eq!(overlap(&[1, 2, 0], &[0, 3, 4]), 0);
        assert_eq!(overlap(&[], &psb), 0);
    }
}
