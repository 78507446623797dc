// Prints what the questions of a test must find.
enum Shape {
    Empty,
    Circle(f64),
    Rect { w: u32, h: u32 },
}

struct Item<'a> {
    id: u32,
    name: &'a str,
    shape: Shape,
    next: Option<Box<i32>>,
    pair: (i16, u64),
    ok: bool,
}

static COUNT: u64 = 5;

#[inline(never)]
fn area(item: &Item, k: f64) -> f64 {
    let area = match &item.shape {
        Shape::Empty => 0.0,
        Shape::Circle(r) => r * r * k,
        Shape::Rect { w, h } => f64::from(w * h),
    };
    let next = item.next.as_ref().map_or(0, |next| **next);
    println!("{}|\"{}\"|{area}|{}|{}|{next}|{COUNT}", item.id, item.name, item.pair.0, item.ok); // the line
    area
}

fn main() {
    let names = ["one", "two", "three"];
    for i in 0..6u32 {
        let shape = match i % 3 {
            0 => Shape::Empty,
            1 => Shape::Circle(f64::from(i)),
            _ => Shape::Rect { w: i, h: 2 },
        };
        let next = if i > 0 { Some(Box::new(i as i32 * 7)) } else { None };
        let name = names[i as usize % 3];
        area(&Item { id: i, name, shape, next, pair: (-3, 9), ok: i > 2 }, 2.0);
    }
}
